"""`ddprof plan`: the best value of a setting, with the curve it was read from."""

from __future__ import annotations

import click

from ddprof.cli.plan_scale import scale, sharding
from ddprof.cli.plan_settings import buckets, loader


@click.group("plan", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Plan a setting from what a run measured, with the curve or table it was read from and what was assumed.

    \b
    ddprof plan buckets ddprof-runs/latest
    ddprof plan loader ddprof-runs/latest
    ddprof plan sharding ddprof-runs/latest
    ddprof plan scale ddprof-runs/latest --world 64
    """


command.add_command(buckets)
command.add_command(loader)
command.add_command(sharding)
command.add_command(scale)

"""`ddprof plan`: the best value of a setting, with the curve it was read from."""

from __future__ import annotations

import click

from ddprof.cli.plan_loader import buckets, loader


@click.group("plan", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Plan a setting from what a run measured: a curve, the best value, and the values as good as it.

    \b
    ddprof plan buckets ddprof-runs/latest
    ddprof plan loader ddprof-runs/latest
    """


command.add_command(buckets)
command.add_command(loader)

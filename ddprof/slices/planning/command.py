"""`ddprof plan`: the best value of a setting, with the curve it was read from, and the best layout over devices."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddprof.cli.fixes import FIXES_HELP
from ddprof.cli.load import load_run, pairs, say
from ddprof.cli.output import write_file
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.whatif import NOW_HELP
from ddprof.errors import UsageError
from ddprof.slices.planning.document import format_option, print_plan
from ddprof.slices.planning.layout_commands import scale, sharding
from ddprof.slices.planning.setting_text import bucket_text, loader_text

if TYPE_CHECKING:
    from ddprof.analyzers.engine import LoadedRun
    from ddprof.analyzers.settings.present import Present


@click.group("plan", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Plan a setting from what a run measured, with the curve or table it was read from and what was assumed.

    \b
    ddprof plan buckets ddprof-runs/latest
    ddprof plan loader ddprof-runs/latest
    ddprof plan sharding ddprof-runs/latest
    ddprof plan scale ddprof-runs/latest --world 64
    """


def _of_a_run(command: Callable[..., None]) -> Callable[..., Any]:
    """What every command here takes: a run, what its recording does not say, and the form of the answer."""
    now_option = click.option("--now", "now", multiple=True, metavar="KEY=VALUE", help=NOW_HELP)
    fixes_option = click.option("--fixes", type=click.Path(path_type=Path), help=FIXES_HELP)
    return click.argument("run")(now_option(fixes_option(format_option(reading_options(command)))))


@command.command("buckets")
@_of_a_run
def buckets(run: str, now: tuple[str, ...], fixes: Path | None, form: str, reading: Reading) -> None:
    """Plan DDP's bucket_cap_mb and first bucket from the run's gradient times and message costs."""
    from ddprof.analyzers.settings.buckets import plan_buckets

    loaded, present = _loaded(run, now, reading)
    plan = plan_buckets(loaded.pricer, present)
    print_plan("ddprof.plan.buckets/1", loaded.label, plan, form, bucket_text)
    _write(fixes, loaded, {"bucket_cap_mb": plan.advised_mb}, plan.caps.now == plan.advised_mb)


@command.command("loader")
@_of_a_run
def loader(run: str, now: tuple[str, ...], fixes: Path | None, form: str, reading: Reading) -> None:
    """Plan num_workers and prefetch_factor from what a batch costs."""
    from ddprof.analyzers.settings.loader import plan_loader

    loaded, present = _loaded(run, now, reading)
    plan = plan_loader(loaded.pricer, present)
    print_plan("ddprof.plan.loader/1", loaded.label, plan, form, loader_text)
    _write(fixes, loaded, {"num_workers": plan.advised_workers}, plan.workers.now == plan.advised_workers)


def _write(path: Path | None, loaded: LoadedRun, values: Mapping[str, bool | float | int | str], same: bool) -> None:
    """The advice as FIXES.toml, for the lines that make what it is of. Raises UsageError where it is none to apply."""
    from ddprof.analyzers.places import lines_for
    from ddprof.settings.fixes_file import write_fixes
    from ddprof.settings.wanted import WantedFix

    if path is None:
        return
    if same:
        raise UsageError("the advice is to keep the setting: there is nothing to apply")
    try:
        places = lines_for(values, loaded.measures.job) or ("",)
        wanted = [WantedFix(values, at, "") for at in places]
    except ValueError as error:
        raise UsageError(f"the advice cannot be applied: {error}") from None
    write_file(path, write_fixes([(fix, "advised by ddprof plan") for fix in wanted]))
    say(f"wrote {path}; next: ddprof run --apply {shlex.quote(str(path))} -- COMMAND")


def _loaded(run: str, now: tuple[str, ...], reading: Reading) -> tuple[LoadedRun, Present]:
    from ddprof.analyzers.settings.present import parse_now, present

    stated = parse_now(pairs("--now", now))
    loaded = load_run(run, reading)
    return loaded, present(loaded.measures, stated)


command.add_command(sharding)
command.add_command(scale)

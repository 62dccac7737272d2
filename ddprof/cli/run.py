"""`ddprof run`: start a training job with capture."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from ddprof.capture.files.config import rank_selected
from ddprof.capture.guard import say
from ddprof.capture.launcher.captured_run import CapturedRun, RunOptions
from ddprof.capture.launcher.chores import chore
from ddprof.capture.launcher.hang import Explained
from ddprof.capture.launcher.launch import run_child
from ddprof.capture.launcher.summary import ToApply
from ddprof.errors import DdprofError, UsageError
from ddprof.untrusted.plain_text import clean


def _percent(_: object, __: object, text: str | None) -> float | None:
    """The share that a text such as "5%" or "5" states. Raises UsageError."""
    if text is None:
        return None
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share < 100:
        raise UsageError(f"--max-overhead {text}: want a number of percent above 0, 5% say")
    return share


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--out", default="ddprof-runs", show_default=True, help="Folder for runs, or an fsspec URL (s3://...).")
@click.option("--name", help="Name of this run (default: the script's).")
@click.option(
    "--run-dir", type=click.Path(path_type=Path), help="Write into exactly this folder (jobs on several nodes)."
)
@click.option("--skip", default=5, show_default=True, type=click.IntRange(0), help="Steps before the first window.")
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1), help="Steps in a trace window.")
@click.option("--every", default=0, type=click.IntRange(0), help="Open a window every N steps (default: only one).")
@click.option(
    "--max-overhead",
    callback=_percent,
    metavar="PERCENT",
    help="Most by which a traced step may be longer: 5%. Beyond it the next window leaves out stacks, then shapes, "
    "then no window opens (default: 15%, and windows go on).",
)
@click.option("--ranks", default="all", show_default=True, help="Ranks that trace: all, 0,7 or sample:32.")
@click.option(
    "--mode",
    type=click.Choice(["trace", "monitor"]),
    default="trace",
    show_default=True,
    help="monitor: always on, a window only on trouble or by `ddprof trigger`.",
)
@click.option(
    "--stacks/--no-stacks",
    default=True,
    show_default=True,
    help="Sample Python stacks: at most 0.1 % of the run, 1 % in windows.",
)
@click.option("--shared", is_flag=True, help="Let other users read the run folder (default: mode 0700).")
@click.option(
    "--on-hang",
    type=click.Choice(["dump", "abort"]),
    default="dump",
    show_default=True,
    help="On a hang: dump keeps every rank's stack; abort also ends the job (SIGTERM).",
)
@click.option(
    "--apply",
    "fix_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FIXES.toml",
    help="Apply these fixes when the script creates loaders, wrappers and optimizers. The script is not edited.",
)
@click.option(
    "--set",
    "fix_values",
    multiple=True,
    metavar="NAME=VALUE",
    help="Apply one setting everywhere, or where one line creates the object (NAME=VALUE@FILE:LINE).",
)
@click.option(
    "--end-after",
    default=0,
    type=click.IntRange(0),
    metavar="STEPS",
    help="End the script on all ranks after this many steps, by SystemExit (0: never).",
)
@click.option(
    "--log-to",
    multiple=True,
    metavar="TRACKER",
    help="Write step times, and at the end the verdict, to wandb, mlflow, tensorboard or comet (NAME[:PLACE]); from a "
    "process of its own.",
)
@click.option("--allow-numerics", is_flag=True, help="Also apply settings that change the precision of the training.")
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    command_line: tuple[str, ...],
    fix_files: tuple[Path, ...],
    fix_values: tuple[str, ...],
    allow_numerics: bool,
    **given: Any,
) -> None:
    """Run COMMAND unchanged and keep a trace of every rank.

    \b
    ddprof run -- torchrun --nproc-per-node=8 train.py
    ddprof analyze ddprof-runs/latest
    ddprof run --set num_workers=4 -- torchrun --nproc-per-node=8 train.py

    The exit code is the command's own (128 + n where signal n ended it).
    """
    _check_out(given["out"])
    follower = _follower(given["log_to"])
    to_apply = _to_apply(fix_files, fix_values, allow_numerics) if fix_files or fix_values else None
    options = RunOptions(**given, to_apply=to_apply, follower=follower)
    _check_ranks(options.ranks)
    run = chore("capture", "the command runs without it", lambda: CapturedRun(options, command_line, _explained))
    if run is None:
        sys.exit(run_child(command_line, os.environ))
    code = run_child(command_line, run.environment, run.tick)
    run.end(code)
    sys.exit(code)


def _to_apply(files: tuple[Path, ...], values: tuple[str, ...], allow_numerics: bool) -> ToApply | None:
    """Settings to apply; those that need a permission which was not given are reported and left out. Raises UsageError
    for a setting that no run could apply.
    """
    from ddprof.settings.catalogue import CATALOGUE
    from ddprof.settings.fixes_file import read_fixes
    from ddprof.settings.wanted import changes_numbers, checked_together, packed, parse_set, variables
    from ddprof.untrusted.suggestions import meant

    for name in (value.partition("=")[0].strip() for value in values):
        if name not in CATALOGUE and (hint := meant(name, CATALOGUE)):
            raise UsageError(f"--set {name}: no such setting{hint}")
    try:
        stated = [parse_set(value) for value in values]
        fixes = checked_together([*(fix for file in files for fix in read_fixes(file)), *stated])
    except ValueError as error:
        raise UsageError(str(error)) from None
    allowed = [fix for fix in fixes if allow_numerics or not changes_numbers(fix)]
    for fix in fixes:
        if fix not in allowed:
            say(f"not applied: {fix.words}: it changes the numbers of the training (--allow-numerics)")
    if not allowed:
        return None
    return ToApply(tuple(fix.words for fix in allowed), packed(allowed), variables(allowed, os.environ))


def _explained(folder: Path) -> Explained | None:
    """The reason why the job that writes to `folder` hangs or failed; None where nothing shows it."""
    from ddprof.analyzers.failure import why

    try:
        failure = why([str(folder)])
    except DdprofError:
        return None
    return Explained(failure.kind, clean(failure.sentence), failure.timeout_s)


def _check_out(out: str) -> None:
    """Raise UsageError for a URL of storage that does not persist."""
    scheme, sign, place = out.partition("://")
    if sign and scheme == "memory":
        raise UsageError(f"--out {out}: what is kept in this process's memory ends with it; name a folder or a store")
    if sign and not place.strip("/"):
        raise UsageError(f"--out {out}: names no place in the store; want {scheme}://BUCKET/FOLDER")


def _follower(trackers: tuple[str, ...]) -> str:
    """The module that writes to the trackers while the job runs, "" without any. Raises UsageError before the job
    starts for an unknown tracker or one whose library is missing.
    """
    if not trackers:
        return ""
    from ddprof.cli.answer import destination

    chosen = destination()
    chosen.sender("--log-to", trackers)
    return chosen.follower


def _check_ranks(ranks: str) -> None:
    try:
        rank_selected(ranks, 0, 1)
    except ValueError:
        raise UsageError(f"--ranks {ranks}: want all, a list like 0,7 or sample:32") from None


if __name__ == "__main__":
    command()

"""`ddprof tune`: try the fixes of a diagnosis on the command itself."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from msgspec.structs import replace
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ddprof.cli.load import say, tell
from ddprof.cli.output import write_file
from ddprof.errors import UsageError
from ddprof.settings.catalogue import CATALOGUE
from ddprof.trials.document import (
    BASELINE,
    DIAGNOSIS,
    FILE,
    NAME_PART,
    Trial,
    TuneOptions,
    TuneState,
    free_folder,
    read_state,
)
from ddprof.units import format_us
from ddprof.untrusted.plain_text import clean
from ddprof.untrusted.secrets import MASK, masked_words

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """90s, 10m, 2h as seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smh])", value.strip())
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r}: wants a time like 90s, 10m or 2h", ctx, param)
    return float(match[1]) * _UNITS_S[match[2]]


@click.command("tune", context_settings={"allow_interspersed_args": False})
@click.option("--budget", callback=_seconds, default="10m", show_default=True, help="Time for all runs together.")
@click.option("--steps", default=40, show_default=True, type=click.IntRange(10), help="Timed steps of each run.")
@click.option("--only", multiple=True, metavar="SETTING", help="Try only this setting (num_workers, ...). Repeatable.")
@click.option("--yes", is_flag=True, help="Run the command without asking.")
@click.option(
    "--dry-run", is_flag=True, help="End after the diagnosis: show what would be tried, with predicted gains."
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Continue an interrupted tuning.",
)
@click.option("--allow-numerics", is_flag=True, help="Also keep settings that change what is trained.")
@click.option("--write-patch", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the patch.")
@click.option("--out", default="ddprof-runs", show_default=True, help="Folder in which this tuning gets its own.")
@click.option("--no-record", is_flag=True, help="Do not append predictions and outcomes to the calibration files.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.pass_context
def command(
    ctx: click.Context,
    command_line: tuple[str, ...],
    budget: float,
    steps: int,
    only: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    resume: Path | None,
    allow_numerics: bool,
    write_patch: Path | None,
    out: str,
    no_record: bool,
) -> None:
    """Run COMMAND for some steps, diagnose it, try the fixes that can be applied to it without an edit, and say which
    to keep, with their measured gain.

    \b
    ddprof tune -- torchrun --nproc-per-node=8 train.py
    ddprof tune --budget 30m --only num_workers -- torchrun --nproc-per-node=8 train.py
    ddprof tune --resume ddprof-runs/20261123T120000Z-tune-train

    Every run is ended after some steps; the script finds the folder of its run in $DDPROF_TRIAL, and can skip
    what must not happen many times. See docs/tuning.md.
    """
    if resume is None and not command_line:
        raise UsageError("tune: want either `-- COMMAND...` or --resume RUN")
    if resume is not None:
        folder, state = resume, read_state(resume)
        if (resume / FILE).stat().st_uid not in (os.getuid(), 0):
            raise UsageError(f"--resume {resume}: owned by another user: its command is not run")
        if Path(state.cwd) != Path.cwd():
            raise UsageError(f"--resume {resume}: started in {state.cwd}: run it from there")
        state.options = replace(state.options, command=_command_of(resume, state, command_line))
        for name, given in (("steps", steps), ("only", only), ("allow_numerics", allow_numerics)):
            if _is_stated(ctx, name) and given != getattr(state.options, name):
                raise UsageError(f"--resume {resume}: its --{name.replace('_', '-')} differs: leave the option out")
        if _is_stated(ctx, "budget"):
            state.options = replace(state.options, budget_s=budget)
    else:
        folder, state = _started(Path(out), TuneOptions(command_line, budget, steps, only, allow_numerics))
    _ask(state, yes)
    with _interruptible(folder):
        _tune(folder, state, dry_run, write_patch, not no_record)


def _is_stated(ctx: click.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _command_of(resume: Path, state: TuneState, given: tuple[str, ...]) -> tuple[str, ...]:
    """The command to continue with: the stored one or, where its secrets were not stored, the given one."""
    if given and masked_words(given) != list(state.options.command):
        raise UsageError(f"--resume {resume}: its command differs: {shlex.join(state.options.command)}")
    if not given and any(MASK in word for word in state.options.command):
        raise UsageError(f"--resume {resume}: the secrets of its command are not stored: add -- COMMAND")
    return given or state.options.command


def _started(out: Path, options: TuneOptions) -> tuple[Path, TuneState]:
    unknown = sorted(set(options.only) - set(CATALOGUE))
    if unknown:
        raise UsageError(f"--only {unknown[0]}: no such setting; there are: {', '.join(sorted(CATALOGUE))}")
    now = time.gmtime()
    scripts = [Path(word).stem for word in options.command if word.endswith(".py")]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", scripts[0] if scripts else Path(options.command[0]).name)
    stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', now)}{NAME_PART}{name}"
    state = TuneState(options=options, cwd=str(Path.cwd()), started_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", now))
    return free_folder(out / stamp).resolve(), state


def _ask(state: TuneState, yes: bool) -> None:
    """Print the planned runs, and wait for a yes."""
    words = shlex.join(state.options.command)
    minutes = state.options.budget_s / 60
    say(f"this runs the command many times, for {minutes:.3g} min at most, and ends each run after some steps: {words}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("tune: no terminal to confirm; --yes runs the command")
    if not click.confirm("Go on?", err=True):
        raise click.Abort


def _tune(folder: Path, state: TuneState, dry_run: bool, write_patch: Path | None, record: bool) -> None:
    from ddprof.slices.tuning import session
    from ddprof.slices.tuning.journal import TrialJournal
    from ddprof.slices.tuning.runs import trial
    from ddprof.slices.tuning.text import plan_text, result_text

    view = TuneView(Console(stderr=True))
    journal = TrialJournal(folder, state, trial.run, view)
    if not state.trials:
        journal.save()  # from here on there is something to go on with, whatever ends it
    with view.shown():
        session.prepare(journal)
    assert state.plan is not None
    say(f"diagnosis: {state.headline}")
    if state.candidates:
        planned = plan_text(state.candidates, state.plan, journal.usual_s, journal.left_s)
        click.echo("\n".join(planned), err=not dry_run)
    if dry_run:
        if not state.candidates:
            tell("Nothing would be tried: no finding asks for a setting that can be applied.")
        _say_how_to_go_on(folder)
        return
    with view.shown():
        answer, left = session.conclude(journal, record)
    tell("\n".join(result_text(answer, left)))
    if write_patch is not None:
        if left.diff:
            write_file(write_patch, left.diff)
        else:
            say(f"{write_patch}: not written: there is no line of a script to edit")
    shown = os.path.relpath(folder)
    if left.fixes is not None:
        say(f"next: ddprof run --apply {shlex.quote(os.path.join(shown, left.fixes.name))} -- COMMAND")
    say(f"all runs are in {shown}")


def _say_how_to_go_on(folder: Path) -> None:
    say(f"to go on: ddprof tune --resume {shlex.quote(os.path.relpath(folder))}")


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """Make SIGTERM and SIGHUP end tuning as Ctrl-C does: the current run is ended with all its processes."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        yield
    except KeyboardInterrupt:
        if (folder / FILE).exists():
            _say_how_to_go_on(folder)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TuneView:
    """A TrialWatcher on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._running: tuple[str, int, float] | None = None  # label, number, when it began
        self._left_s = 0.0
        self._best: tuple[float, str] | None = None
        self._baseline_us: float | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show a status line at the bottom of a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(Text(""), console=self._console, transient=True, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def began(self, label: str, number: int, left_s: float) -> None:
        """Show the run that begins now."""
        self._running, self._left_s = (label, number, time.monotonic()), left_s
        self.tick()

    def tick(self) -> None:
        """Redraw the line."""
        if self._live is not None and self._running is not None:
            label, number, began_s = self._running
            passed_s = time.monotonic() - began_s
            left = f"{max(0.0, self._left_s - passed_s):.0f} s of the budget left"
            line = f"run {number}  {label}  {passed_s:.0f} s; {left}{self._best_words()}"
            self._live.update(Text(clean(line), style="bold", overflow="ellipsis", no_wrap=True), refresh=True)

    def ended(self, trial: Trial, is_new: bool) -> None:
        """Print a line for the run."""
        outcome = trial.failed or (format_us(trial.step_us) + " per step" if trial.step_us is not None else "not timed")
        if trial.label == DIAGNOSIS and not trial.failed:
            outcome = f"traced, {trial.steps} steps"
        made = f"{trial.took_s:.0f} s" if is_new else "made before"
        note = f"; {trial.note}" if trial.note else ""
        self._console.print(Text(clean(f"ddprof: {trial.label}: {outcome} ({made}){note}")), soft_wrap=True)
        self._running = None
        if trial.step_us is None or trial.label == DIAGNOSIS:
            return
        if trial.label == BASELINE:
            self._baseline_us = trial.step_us
        elif self._best is None or trial.step_us < self._best[0]:
            self._best = (trial.step_us, trial.label)

    def _best_words(self) -> str:
        if self._best is None or self._baseline_us is None or self._best[0] >= self._baseline_us:
            return ""
        return (
            f"; best run so far {format_us(self._best[0])} ({self._best[1]}), as it is {format_us(self._baseline_us)}"
        )

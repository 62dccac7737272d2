"""`ddprof status`, `trigger` and `stop`: step times of a running job, per rank, a trace window, an end of capture."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddprof.capture.files.control import LONGEST_WINDOW
from ddprof.capture.files.step import PHASE_NAMES
from ddprof.capture.launcher.live import LiveRank, latest_late, read_ranks, request_stop, request_window, silent_ranks
from ddprof.errors import DdprofError, NoUsableInput
from ddprof.units import format_count, format_ranks
from ddprof.untrusted.plain_text import clean

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


_PERIOD_S = 1.0
_of_a_run = click.argument("run", type=click.Path(path_type=Path), default=Path("ddprof-runs/latest"))


@click.command("status")
@_of_a_run
@click.option("--once", is_flag=True, help="Print once instead of refreshing until the job ends.")
def status(run: Path, once: bool) -> None:
    """Show who is behind and where the time goes in the job that writes to the run folder RUN."""
    from rich.console import Console
    from rich.live import Live

    if not os.path.lexists(run):  # raises nothing, whatever the name
        raise NoUsableInput(f"{run}: no such folder; `ddprof run` prints the folder that it writes to")
    ranks = ranks_of(run)
    console = Console(highlight=False)
    if once or not sys.stdout.isatty():
        console.print(_view(run, ranks))
        return
    with Live(_view(run, ranks), console=console, auto_refresh=False) as live:
        while ranks:
            live.update(_view(run, ranks), refresh=True)
            time.sleep(_PERIOD_S)
            ranks = read_ranks(run)


def _view(run: Path, ranks: Sequence[LiveRank]) -> Group:
    """One sentence, and a line per rank."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(clean(_headline(run, ranks)), overflow="fold", no_wrap=False), _table(ranks))


def _table(ranks: Sequence[LiveRank]) -> Table:
    """Medians of the recent bare steps, in milliseconds."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(caption="medians of the recent steps in ms; idle: since the last step", box=box.SIMPLE)
    for heading in ("rank", "host", "step", "ms/step", "data", "fwd", "bwd", "opt", "coll", "idle"):
        table.add_column(heading, justify="left" if heading == "host" else "right", no_wrap=True)
    late = latest_late(ranks)
    for rank in ranks:
        cells = [
            str(rank.rank),
            escape(clean(rank.host)),
            str(rank.last_step) if rank.steps else "-",
            _ms(rank.median_ns()),
        ]
        cells += [_ms(rank.median_ns(f"{phase}_ns")) for phase in PHASE_NAMES]
        cells.append(f"{rank.age_ns / 1e9:.1f} s")
        table.add_row(*cells, style="bold" if late is not None and late.rank == rank.rank else None)
    return table


def _headline(run: Path, ranks: Sequence[LiveRank]) -> str:
    late = latest_late(ranks)
    text = f"{format_count(len(ranks), 'rank')} of {run}: step {max(max(rank.last_step for rank in ranks), 0)}"
    if stuck := silent_ranks(ranks):
        return f"{text}; no step for a while on {format_ranks(stuck)}: ddprof hang {run} says why"
    if late is not None:
        return f"{text}; rank {late.rank} is {_ms(late.late_ns)} ms late per step, in {late.phase}"
    return f"{text}; no rank is behind"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.1f}"


def ranks_of(run: Path) -> list[LiveRank]:
    """The ranks that write to the run folder. Raises NoUsableInput where none does."""
    ranks = read_ranks(run)
    if not ranks:
        raise NoUsableInput(f"{run}: no rank of a running job (it has ended, or has made no step yet)")
    return ranks


@click.command("trigger")
@_of_a_run
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1, LONGEST_WINDOW), help="Steps to trace.")
@click.option("--reason", default="ddprof trigger", help="Kept beside the window.")
def trigger(run: Path, steps: int, reason: str) -> None:
    """Trace the next steps of the job that writes to the run folder RUN, on all its ranks at the same step."""
    ranks = ranks_of(run)
    with _written(run):
        first_step = request_window(run.resolve(), ranks, steps, reason)
    words = f"steps {first_step} to {first_step + steps - 1}" if steps > 1 else f"step {first_step}"
    click.echo(f"{words} will be traced on {format_count(len(ranks), 'rank')}", err=True)


@click.command("stop")
@_of_a_run
def stop(run: Path) -> None:
    """End capture in the job that writes to the run folder RUN. What was captured is written, the job goes on."""
    ranks = ranks_of(run)
    with _written(run):
        request_stop(run.resolve())
    click.echo(f"capture ends on {format_count(len(ranks), 'rank')} at the next step; the job goes on", err=True)


@contextmanager
def _written(run: Path) -> Iterator[None]:
    """Raise DdprofError where a request cannot be written to the run folder."""
    try:
        yield
    except OSError as error:
        raise DdprofError(f"{run}: cannot be written: {error.strerror}") from None

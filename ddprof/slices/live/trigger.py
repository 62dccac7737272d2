"""`ddprof trigger`: open a trace window on a running job."""

from __future__ import annotations

from pathlib import Path

import click

from ddprof.capture.files.control import LONGEST_WINDOW
from ddprof.capture.launcher.live import request_window
from ddprof.errors import DdprofError
from ddprof.slices.live.status import ranks_of
from ddprof.units import format_count


@click.command("trigger")
@click.argument("run", type=click.Path(path_type=Path), default=Path("ddprof-runs/latest"))
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1, LONGEST_WINDOW), help="Steps to trace.")
@click.option("--reason", default="ddprof trigger", help="Kept beside the window.")
def command(run: Path, steps: int, reason: str) -> None:
    """Trace the next steps of the job that writes to the run folder RUN, on all its ranks at the same step."""
    ranks = ranks_of(run)
    try:
        first_step = request_window(run.resolve(), ranks, steps, reason)
    except OSError as error:
        raise DdprofError(f"{run}: cannot be written: {error.strerror}") from None
    words = f"steps {first_step} to {first_step + steps - 1}" if steps > 1 else f"step {first_step}"
    click.echo(f"{words} will be traced on {format_count(len(ranks), 'rank')}", err=True)

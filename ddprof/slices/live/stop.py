"""`ddprof stop`: end capture, not the job."""

from __future__ import annotations

from pathlib import Path

import click

from ddprof.capture.launcher.live import request_stop
from ddprof.errors import DdprofError
from ddprof.slices.live.status import ranks_of
from ddprof.units import format_count


@click.command("stop")
@click.argument("run", type=click.Path(path_type=Path), default=Path("ddprof-runs/latest"))
def command(run: Path) -> None:
    """End capture in the job that writes to the run folder RUN. What was captured is written, the job goes on."""
    ranks = ranks_of(run)
    try:
        request_stop(run.resolve())
    except OSError as error:
        raise DdprofError(f"{run}: cannot be written: {error.strerror}") from None
    click.echo(f"capture ends on {format_count(len(ranks), 'rank')} at the next step; the job goes on", err=True)

"""The process that logs a running job to experiment trackers, and its verdict at the end.

`ddprof run --log-to` starts it beside the job, with the step rings to read and a pipe as stdin that closes when the job
has ended. It is a process of its own so that neither a tracker's threads nor its server can hold up the launcher's
watching, and its priority is low so that it takes no core from the ranks.
"""

from __future__ import annotations

import os
import select
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from ddprof.capture.launcher.chores import stated_s
from ddprof.capture.launcher.live import read_ranks
from ddprof.cli.load import say
from ddprof.errors import DdprofError
from ddprof.slices.trackers.content import Content, of_report, of_running
from ddprof.slices.trackers.destination import parse_targets
from ddprof.slices.trackers.sending import Sending

PERIOD_S = 10.0  # a tracker's chart needs no more points
_NICENESS = 10


@click.command("follow")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--log-to", "targets", multiple=True, required=True)
@click.option("--name", required=True)
def command(folder: Path, targets: tuple[str, ...], name: str) -> None:
    """Write the run in FOLDER to trackers until stdin closes; then analyze it and write the verdict."""
    with suppress(OSError):
        os.nice(_NICENESS)
    sending = Sending(parse_targets("--log-to", targets), name, say, live=True)
    last_step = _follow(folder, sending)
    _conclude(folder, sending, last_step)
    sending.close()


def _follow(folder: Path, sending: Sending) -> int:
    """Log until the job has ended; returns the last step that every rank had made."""
    last_step = -1
    while not select.select([sys.stdin], [], [], stated_s("DDPROF_LOG_PERIOD_S", PERIOD_S))[0]:
        ranks = read_ranks(folder)
        newest = min((rank.last_step for rank in ranks), default=-1)
        if newest > last_step:
            last_step = newest
            sending.log(of_running(ranks), newest)
    return max(last_step, 0)


def _conclude(folder: Path, sending: Sending, step: int) -> None:
    from ddprof.api import analyze

    try:
        run = analyze(folder)
    except DdprofError as error:
        say(f"no verdict for the trackers: {error}")
        sending.log(Content(words={"ddprof/verdict": f"none: {error}"}), step)
        return
    with tempfile.TemporaryDirectory(prefix="ddprof-") as scratch:
        try:
            html = run.save_html(Path(scratch) / "ddprof-report.html")
        except (DdprofError, ImportError) as error:
            say(f"no HTML report for the trackers: {error}")
            sending.log(of_report(run.report, None, str(folder)), step)
            return
        sending.log(of_report(run.report, html, str(folder)), step)
        sending.close()  # before the file goes


if __name__ == "__main__":
    command()

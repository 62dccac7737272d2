"""Trackers as destinations of `ddprof report --to` and `ddprof run --log-to`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.capture.files.layout import MANIFEST
from ddprof.cli.answer import Destination, Send
from ddprof.errors import DdprofError
from ddprof.slices.trackers.target import parse_targets

if TYPE_CHECKING:
    from ddprof.report.model import Report


def _sender(option: str, names: Sequence[str]) -> Send:
    targets = parse_targets(option, names)

    def send(report: Report, file: Path, path: str | None) -> None:
        from ddprof.cli.load import say
        from ddprof.slices.trackers.content import of_report
        from ddprof.slices.trackers.sending import Sending

        folder = "" if path is None else str(Path(path).resolve())
        sending = Sending(targets, _run_name(path, report), say)
        sending.log(of_report(report, file, folder))
        sending.close()
        if sending.failed:
            raise DdprofError(f"not written to {', '.join(sending.failed)}")

    return send


def _run_name(path: str | None, report: Report) -> str:
    """Name of the folder made by `ddprof run`; else the report's own name."""
    folder = Path(path).resolve() if path is not None else None
    if folder is not None and (folder / MANIFEST).is_file():
        return folder.name
    return report.run.name or "run"


DESTINATION = Destination(_sender, "ddprof.slices.trackers.follow")

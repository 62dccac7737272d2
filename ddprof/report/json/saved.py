"""Saved reports: the JSON documents that `ddprof analyze --format json` writes, told apart from traces by content."""

from __future__ import annotations

import json
from pathlib import Path

from ddprof.errors import NoUsableInput
from ddprof.report.json.contract import from_document
from ddprof.report.model import Report

_HEAD_BYTES = 400
_MARK = b'"ddprof.report'


def is_saved_report(path: str) -> bool:
    """Whether the file is a saved report (it states the schema within its first bytes)."""
    file = Path(path)
    if file.suffix != ".json" or not file.is_file():
        return False
    with file.open("rb") as stream:
        return _MARK in stream.read(_HEAD_BYTES)


def read_saved(file: Path) -> list[Report]:
    """The reports in a saved document. Raises NoUsableInput, naming the file, where it cannot be read."""
    try:
        return from_document(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, NoUsableInput) as error:
        raise NoUsableInput(f"{file}: {error}") from error

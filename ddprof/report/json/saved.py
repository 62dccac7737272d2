"""Saved reports: the JSON documents that `ddprof analyze --format json` writes, told apart from traces by content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ddprof.errors import NoUsableInput
from ddprof.report.json.contract import from_document
from ddprof.report.model import Report
from ddprof.untrusted.regular_files import open_regular, read_bounded

MAX_BYTES = 64 << 20  # 4,096 ranks are some 5 MB
_HEAD_BYTES = 400
_MARK = b'"ddprof.report'


def is_saved_report(path: str) -> bool:
    """True where the first bytes of the file state the schema of a report."""
    if not path.endswith(".json"):
        return False
    try:
        with open_regular(path) as stream:
            return _MARK in stream.read(_HEAD_BYTES)
    except (OSError, ValueError):  # whoever reads it as a trace will say why
        return False


def read_saved(file: Path) -> list[Report]:
    """The reports in a saved document. Raises NoUsableInput, naming the file, where it cannot be read."""
    try:
        return from_document(msgspec.json.decode(read_bounded(file, MAX_BYTES), type=dict[str, Any]))
    except OSError as error:
        raise NoUsableInput(f"{file}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoUsableInput(f"{file}: damaged ddprof report: {error}") from error
    except NoUsableInput as error:
        raise NoUsableInput(f"{file}: {error}") from error

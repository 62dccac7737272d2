"""FIXES.toml, which `ddprof analyze` and `ddprof plan` write for `ddprof run --apply`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.capture.files.layout import MANIFEST
from ddprof.cli.output import write_file
from ddprof.errors import UsageError

if TYPE_CHECKING:
    from ddprof.report.model import Report

FIXES_HELP = "Write the fixes for `ddprof run --apply` to this file."


def leave_fixes(report: Report, paths: Sequence[str], stated: Path | None) -> Path | None:
    """Write the report's fixes to `stated`, else as FIXES.toml into the folder of a `ddprof run` run; return the file.

    An existing FIXES.toml is kept, since it may have been edited. Returns None where no file was written. Raises
    UsageError where `stated` cannot be written or there is no fix to write.
    """
    from ddprof.report.fixes import FILE_NAME, fixes_file

    text = fixes_file(report)
    if stated is not None:
        if text is None:
            raise UsageError(f"{stated}: not written: no fix of this run can be applied without an edit")
        write_file(stated, text)
        return stated
    folder = Path(paths[0])
    if text is None or len(paths) != 1 or not (folder / MANIFEST).is_file():
        return None
    path = folder / FILE_NAME
    if not path.exists():
        try:
            write_file(path, text)
        except UsageError:
            return None  # a folder that is only read
    return path

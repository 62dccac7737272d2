"""Reports of Nsight Systems (.nsys-rep), read by the database that an installed `nsys` makes of them."""

from __future__ import annotations

from pathlib import Path
from shutil import which

from ddprof.errors import NoUsableInput
from ddprof.readers.files.sqlite_file import REPORT_MAGIC
from ddprof.readers.format import Format, Sample
from ddprof.readers.formats.nsys import process_parts, read_nsys
from ddprof.readers.source import Source


def _parts(source: Source) -> list[str]:
    """Parts of the exported database; none where `nsys` left it beside the report, as it is then a source itself."""
    beside = Path(source.path).with_suffix(".sqlite")
    if source.member is None and "://" not in source.path and beside.is_file():
        raise NoUsableInput(f"{source.label}: its export lies beside it and is what to analyze: {beside.name}")
    return process_parts(source)


def _recognise(sample: Sample) -> bool:
    return sample.head.startswith(REPORT_MAGIC)


def _missing() -> str | None:
    if which("nsys") is not None:
        return None
    return (
        "a report of Nsight Systems, which only its own tools read: `nsys export --type sqlite FILE` makes what "
        "ddprof reads, and ddprof calls it itself where nsys is on PATH"
    )


FORMAT = Format("nsys_report", "a report of Nsight Systems", _recognise, read_nsys, _parts, missing=_missing)

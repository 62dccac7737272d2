"""Writes ddprof/report/redaction/prose_words.txt: the words of ddprof's own texts, which a redacted report keeps.

    python .ci/prose_words.py

A test says where the file is not that of the sources. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddprof.report.redaction.redact import COMPOUND, JOINT

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "ddprof" / "report" / "redaction" / "prose_words.txt"
# Folders whose texts stand in reports. Of a source text is a string within a line, of a table (of GPUs) all.
FOLDERS = (
    *("analyzers", "ddprof/readers", "ddprof/report", "ddprof/slices"),
    *("dashboard/exhibits", "dashboard/onefile", "dashboard/timeline"),
)
BASIS = "ddprof"  # of this one the files at its top: causes, units, findings, tables
_STRING = re.compile(r'"([^"\n]*)"|\'([^\'\n]*)\'')
_UNREPORTED = re.compile(r"ddprof/slices/(?:trackers/|tuning/|\w+/\w*command)")  # what only commands print or send
_NEVER = frozenset({"secret", "secrets", "private", "password", "passwd", "credential", "credentials", "hidden_size"})


def words() -> list[str]:
    """Words and compounds of the texts in ddprof's sources, in lower case and in order."""
    names: set[str] = set()
    for text in _texts():
        for compound in COMPOUND.findall(text.lower()):
            names.add(compound)
            names.update(JOINT.split(compound))
    return sorted(names - _NEVER - {""})


def _texts() -> Iterator[str]:
    for table in (ROOT / BASIS).glob("*.toml"):
        yield table.read_text(encoding="utf-8")
    for file in _sources():
        # The words of redaction itself are in no sentence of a report.
        if LIST.parent not in file.parents and not _UNREPORTED.search(file.as_posix()):
            yield from (m.group(1) or m.group(2) or "" for m in _STRING.finditer(file.read_text(encoding="utf-8")))


def _sources() -> Iterator[Path]:
    yield from (ROOT / BASIS).glob("*.py")
    for folder in FOLDERS:
        yield from (ROOT / folder).rglob("*.py")


if __name__ == "__main__":
    LIST.write_text("".join(f"{word}\n" for word in words()), encoding="utf-8")

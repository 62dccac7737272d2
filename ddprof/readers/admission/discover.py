"""From what the user typed to sources.

Folders walked, archives opened, every file recognised by content, companions attached.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ddprof.errors import DdprofError, NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.admission.attach import attach
from ddprof.readers.admission.parts import split_parts
from ddprof.readers.admission.runs import group_runs
from ddprof.readers.admission.sniff import Sniffed, sniff
from ddprof.readers.files.archives import is_archive, members
from ddprof.readers.files.streams import open_blocks, open_raw
from ddprof.readers.format import Sample
from ddprof.readers.formats import FORMATS
from ddprof.readers.formats.kineto import FORMAT as KINETO
from ddprof.readers.source import Inventory, Source

HEAD_BYTES = 1 << 18  # enough to recognise all other files by
LATE_EVENTS_BYTES = 64 << 20  # how far to look for "traceEvents" in JSON that starts with something else
_SKIPPED_SUFFIXES = (".tmp", ".ring", ".bin", ".py", ".md", ".txt", ".log", ".html", ".csv", ".yaml", ".yml", ".sh")


@dataclass(frozen=True)
class Found:
    """A file that was looked at: where it is, and what it turned out to be."""

    source: Source
    sniffed: Sniffed
    root: str


def discover(paths: Sequence[str | os.PathLike[str]]) -> Inventory:
    """Everything readable under `paths`: files, folders (recursively), archives, fsspec URLs, run folders.

    Raises NoUsableInput, in one line, where a path does not exist or nothing in all of them is a trace.
    """
    found: list[Found] = []
    notes: list[HealthNote] = []
    for path in paths:
        for candidate in _files(os.fspath(path)):
            found.extend(_look(candidate, os.fspath(path), notes))
    sources, ignored = attach([f.source for f in found if f.sniffed.format in (*FORMATS, "run_file")])
    sources, left_out = split_parts(sources)
    notes += _ignored_notes(found) + ignored + left_out
    if not sources:
        raise NoUsableInput(_nothing(paths, found, notes))
    runs, run_notes = group_runs(sources, [os.fspath(p) for p in paths])
    kept = tuple(source for _, members_ in runs for source in members_)
    return Inventory(kept, (*notes, *run_notes), tuple(runs))


def _files(path: str) -> Iterator[Source]:
    """Every file under a path, in a stable order, with size and time; hidden folders are left out."""
    if "://" in path:
        yield from _remote_files(path)
        return
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isfile(path):
        yield _stated(path)
        return
    if not os.path.isdir(path):
        raise NoUsableInput(f"{path}: no such file or folder")
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")))
        for name in sorted(names):
            if not name.startswith("."):
                yield _stated(os.path.join(folder, name))


def _stated(path: str) -> Source:
    status = os.stat(path)
    return Source(path, "", size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def _remote_files(url: str) -> Iterator[Source]:
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
        listed = system.find(root, detail=True)
    except (OSError, ValueError, ImportError) as error:
        raise NoUsableInput(f"{url}: cannot be read: {str(error).splitlines()[0]}") from error
    if not listed:
        raise NoUsableInput(f"{url}: no such file or folder")
    for path, info in sorted(listed.items()):
        yield Source(system.unstrip_protocol(path), "", size_bytes=int(info.get("size") or 0))


def _look(candidate: Source, root: str, notes: list[HealthNote]) -> Iterator[Found]:
    if candidate.path != root and candidate.path.endswith(_SKIPPED_SUFFIXES):
        return
    try:
        if is_archive(candidate.path):
            for member, size in members(candidate.path):
                inside = replace(candidate, member=member, size_bytes=size)
                if not member.endswith(_SKIPPED_SUFFIXES):
                    yield _sniffed(inside, root)
            return
        yield _sniffed(candidate, root)
    except (DdprofError, OSError) as error:
        notes.append(HealthNote(str(error), "this file is left out"))


def _sniffed(source: Source, root: str) -> Found:
    with open_blocks(source.path, source.member) as blocks:
        head, result = b"", None
        for block in blocks:
            head += block
            if len(head) < HEAD_BYTES:
                continue
            result = result or sniff(Sample(head[:HEAD_BYTES]))
            if not _may_come_later(head, result) or len(head) > LATE_EVENTS_BYTES:
                break
        result = result or sniff(Sample(head))
        if result.format is None and b'"traceEvents"' in head:
            result = Sniffed(KINETO.name, KINETO.what)
        if head.startswith(b"PAR1") and source.member is None:
            result = sniff(Sample(head[:HEAD_BYTES], _tail(source)))
        if result.format is None and blocks.damage and len(head) < HEAD_BYTES:
            result = Sniffed(None, f"{result.what}; {blocks.damage}")
    return Found(replace(source, format=result.format or ""), result, root)


def _tail(source: Source) -> bytes:
    with open_raw(source.path) as raw:
        raw.seek(-min(source.size_bytes, HEAD_BYTES), os.SEEK_END)
        return raw.read()


def _may_come_later(head: bytes, result: Sniffed) -> bool:
    """JSON objects may hold megabytes of metadata before their events."""
    return result.format is None and head.lstrip()[:1] == b"{" and b'"traceEvents"' not in head


def _ignored_notes(found: list[Found]) -> list[HealthNote]:
    """One note per file that looks like a failed trace; one line for all the JSON that simply is something else."""
    notes = []
    other: Counter[str] = Counter()
    for item in found:
        if item.sniffed.format == "execution_trace":
            issue = f"{item.source.label}: an execution trace, which has no timeline"
            effect = "left out: capture one with torch.profiler or `ddprof run`"
            notes.append(HealthNote(issue, effect))
        elif item.sniffed.format is None and item.sniffed.what.startswith(
            ("JSON, but", "a parquet", "an Arrow", "a picture")
        ):
            other[item.sniffed.what] += 1
        elif item.sniffed.format is None:
            notes.append(HealthNote(f"{item.source.label}: {item.sniffed.what}", "left out"))
    for what, count in other.items():
        notes.append(HealthNote(f"{count} other {'file' if count == 1 else 'files'} ({what})", "left out", "info"))
    return notes


def _nothing(paths: Sequence[str | os.PathLike[str]], found: list[Found], notes: list[HealthNote]) -> str:
    if len(found) == 1 and found[0].sniffed.format == "execution_trace":
        return (
            f"{found[0].source.label}: this is an execution trace, not a timeline; "
            "capture one with torch.profiler or `ddprof run`"
        )
    if len(found) == 1 and found[0].sniffed.format is None:
        return f"{found[0].source.label}: {found[0].sniffed.what}"
    faults = [note.issue for note in notes if note.severity != "info"]
    if len(faults) == 1 and len(found) <= 1:
        return faults[0]
    kinds = Counter(f.sniffed.what for f in found)
    seen = "; ".join(f"{n} × {what}" for what, n in kinds.most_common(3)) or "no file"
    return f"{', '.join(os.fspath(p) for p in paths)}: no trace found ({seen})"

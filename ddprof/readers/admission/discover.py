"""Discovery of sources under the user's paths.

Walks folders, opens archives, recognises every file by content, attaches companions (sidecar, manifests, dump).
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import IO

from msgspec import Struct

from ddprof.errors import DdprofError, NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.admission.runs import absolute, group_runs, together
from ddprof.readers.admission.sniff import TAR, TEXTS, UNREMARKABLE, ZIP, Sniffed, sniff
from ddprof.readers.admission.walk import is_skipped, may_be_anything, walk
from ddprof.readers.files.archives import ZIP_MAGIC_BYTES, is_zip, open_archive, open_member, shown_members
from ddprof.readers.files.names import file_name, is_name_of_trace, process_in_name, rank_in_name
from ddprof.readers.files.opening import ARCHIVE_DAMAGE, one_line
from ddprof.readers.files.remote import is_url
from ddprof.readers.files.streams import open_raw
from ddprof.readers.files.unpacking import ByteStream, MemberBudget, among
from ddprof.readers.format import Sample
from ddprof.readers.formats import formats
from ddprof.readers.formats.kineto import FORMAT as KINETO
from ddprof.readers.side_files.manifests import host_in_name
from ddprof.readers.source import Inventory, OnlyLogs, Source, common_length
from ddprof.units import format_count
from ddprof.untrusted.stores import AT_ONCE

HEAD_BYTES = 1 << 18  # enough to recognise all other files by
# How far to look for "traceEvents" in JSON that starts with something else, and for iterations below settings.
LATE_EVENTS_BYTES = 64 << 20
LATE_EVENTS_TOGETHER_BYTES = 2 << 30  # the same in all files: a folder of a thousand logs takes 14 s
MOST_NAMED = 8  # paths in a line of error: an upload may have thousands
MOST_LOGS = 4  # of training beside traces that are read for a note each: a log of 22 MB of iterations takes 7 s
NO_TRACE = "no trace found"
_EVENTS = b'"traceEvents"'


class Found(Struct, frozen=True):
    """A file with its place and its recognised kind."""

    source: Source
    sniffed: Sniffed
    root: str
    looked_bytes: int  # unpacked to find that out


def discover(paths: Sequence[str | os.PathLike[str]], window: int | None = None) -> Inventory:
    """Everything readable under `paths`: files, folders (recursively), archives, fsspec URLs, run folders.

    Raises NoUsableInput, in one line, where a path does not exist or nothing in all of them is a trace: OnlyLogs where
    there are files without events instead of traces, such as logs of training jobs.
    """
    notes: list[HealthNote] = []
    files = list(_looked(_walked(paths, notes), notes))
    logs = tuple(f.source for f in files if _holds_events(f) is False)
    sources, ignored = attach([f.source for f in files if _holds_events(f) or f.sniffed.format == "run_file"])
    sources, left_out = _split_parts(sources)
    refused = next((note.issue for note in (*left_out, *notes) if note.severity != "info"), "")
    notes += _ignored_notes(files) + ignored + left_out + (_log_notes(logs) if sources else [])
    if not sources and logs:
        raise OnlyLogs(f"{_named_log(logs[0])}, which holds no events: `ddprof analyze` alone reads it", logs)
    if not sources:
        raise NoUsableInput(_nothing(paths, files, notes, refused))
    runs, run_notes = group_runs(sources, [os.fspath(p) for p in paths], window)
    runs, part_notes = together(runs)
    kept = tuple(source for _, members_ in runs for source in members_)
    return Inventory(kept, (*notes, *run_notes, *part_notes), tuple(runs))


def files_of(paths: Sequence[str | os.PathLike[str]], form: str) -> list[Source]:
    """The files of one format under `paths`, whether or not the format can make a run. Raises NoUsableInput, in one
    line, where a path does not exist.
    """
    notes: list[HealthNote] = []
    return [item.source for item in _looked(_walked(paths, notes), notes) if item.sniffed.format == form]


def _walked(paths: Sequence[str | os.PathLike[str]], notes: list[HealthNote]) -> list[tuple[str, list[Source]]]:
    """Each path with the files below it."""
    roots = [(os.fspath(path), list(walk(os.fspath(path), notes))) for path in paths]
    count = sum(len(candidates) for _, candidates in roots)
    return [(root, [replace(candidate, among=count) for candidate in candidates]) for root, candidates in roots]


def _looked(roots: Sequence[tuple[str, list[Source]]], notes: list[HealthNote]) -> Iterator[Found]:
    """Kind of each file below the roots, in order; files of a store are read concurrently."""
    late = Late()

    def look(root: str, candidate: Source) -> tuple[list[Found], list[HealthNote]]:
        of_file: list[HealthNote] = []
        with among(candidate.among):
            return list(_look(candidate, root, late, of_file)), of_file

    with ThreadPoolExecutor(AT_ONCE) as pool:  # which starts no thread where nothing is mapped
        for root, candidates in roots:
            for files, of_file in (pool.map if is_url(root) else map)(partial(look, root), candidates):
                notes += of_file
                yield from files
    if late.left_bytes <= HEAD_BYTES:
        issue = f"{LATE_EVENTS_TOGETHER_BYTES >> 30} GiB of the files do not begin as a trace"
        notes.append(HealthNote(issue, "only the beginning of further files was searched", "warning"))


@dataclass
class Late:
    """Shared budget for searching files deeply, for events that begin late in them."""

    left_bytes: int = LATE_EVENTS_TOGETHER_BYTES

    def looked(self, file: Found) -> Found:
        """The file, with its share taken from the budget."""
        self.left_bytes = max(0, self.left_bytes - max(0, file.looked_bytes - HEAD_BYTES))
        return file

    @property
    def of_one_bytes(self) -> int:
        """Bytes of the next file to search."""
        return min(self.left_bytes, LATE_EVENTS_BYTES)


def _look(candidate: Source, root: str, late: Late, notes: list[HealthNote]) -> Iterator[Found]:
    """Kind of a file or, for an archive, of each member, in one pass."""
    try:
        with open_raw(candidate.path, head_only=True) as stored:
            packed = is_zip(stored.read(ZIP_MAGIC_BYTES))
            stored.seek(0)
            if not packed:
                file = late.looked(_sniffed(candidate, stored, root, late.of_one_bytes))
                packed = file.sniffed.format is None and file.sniffed.what == TAR
                if not packed:
                    yield file
        if packed:
            yield from _look_inside(candidate, root, late, notes)
    except (DdprofError, OSError) as error:
        notes.append(HealthNote(_named(candidate, error), "this file is left out", where=candidate.path))


def _look_inside(archive: Source, root: str, late: Late, notes: list[HealthNote]) -> Iterator[Found]:
    """Each member of an archive. Raises OSError, in one line, after the members before any damage."""
    try:
        with open_archive(archive.path) as opened:
            for member, size_bytes in shown_members(opened):
                inside = replace(archive, member=member, size_bytes=size_bytes)
                if is_skipped(member):
                    continue
                try:
                    with open_member(opened, member) as (stored, budget):
                        file = late.looked(_sniffed(inside, stored, root, late.of_one_bytes, budget))
                except (DdprofError, OSError, *ARCHIVE_DAMAGE) as error:
                    notes.append(HealthNote(_named(inside, error), "this file is left out", where=inside.path))
                    continue
                yield file
    except ARCHIVE_DAMAGE as error:
        raise OSError(f"damaged archive ({one_line(error)})") from error


def _sniffed(
    source: Source, stored: IO[bytes], root: str, late_bytes: int, budget: MemberBudget | None = None
) -> Found:
    """Kind of a file. JSON objects may hold megabytes of metadata before their events, logs of settings before their
    iterations, so `late_bytes` are searched.
    """
    blocks = ByteStream(stored, budget)
    head, recent, looked_bytes, result = b"", b"", 0, None
    cut, late = b"", [(name, form) for name, form in formats().items() if form.is_late]
    for block in blocks:
        looked_bytes += len(block)
        if result is None:
            head += block
            if len(head) < HEAD_BYTES:
                continue
            result, recent = sniff(Sample(head[:HEAD_BYTES])), head
        else:
            recent = recent[1 - len(_EVENTS) :] + block
        if result.format is not None or looked_bytes > late_bytes:
            break
        if result.what in TEXTS and late and b"\0" not in head[:HEAD_BYTES]:
            lines, _, cut = (cut + (recent if recent is head else block)).rpartition(b"\n")
            cut = cut[-HEAD_BYTES:]
            result = next(
                (Sniffed(name, form.what) for name, form in late if form.is_late and form.is_late(lines)), result
            )
        elif _EVENTS in recent or not Sample(head).is_object:
            break
    result, recent = (result, recent) if result else (sniff(Sample(head)), head)
    if result.format is None and result.what not in (TAR, ZIP) and _EVENTS in recent:
        result = Sniffed(KINETO.name, KINETO.what)
    if head.startswith(b"PAR1") and source.member is None:
        stored.seek(-min(source.size_bytes, HEAD_BYTES), os.SEEK_END)
        result = sniff(Sample(head[:HEAD_BYTES], stored.read()))
    if result.format is None and result.what != TAR and blocks.damage and len(head) < HEAD_BYTES:
        result = Sniffed(None, f"{result.what}; {blocks.damage}")
    return Found(replace(source, format=result.format or ""), result, root, looked_bytes)


def _named(source: Source, error: Exception) -> str:
    return str(error) if isinstance(error, DdprofError) else f"{source.label}: {one_line(error)}"


def _ignored_notes(files: list[Found]) -> list[HealthNote]:
    """One note per file that looks like a failed trace; one line for all unrelated JSON files."""
    notes = []
    other: dict[tuple[str, str], list[str]] = {}
    for item in files:
        where, is_other = item.source.path, item.sniffed.format is None
        if item.source.member and item.sniffed.what in (TAR, ZIP):
            issue = f"{item.source.label}: an archive inside an archive"
            notes.append(HealthNote(issue, "left out: unpack the outer one", where=where))
        elif item.sniffed.format == "execution_trace":
            issue = f"{item.source.label}: an execution trace, which has no timeline"
            effect = "left out: capture one with torch.profiler or `ddprof run`"
            notes.append(HealthNote(issue, effect, where=where))
        elif is_other and item.sniffed.what in UNREMARKABLE and not is_name_of_trace(item.source.member or where):
            other.setdefault((item.sniffed.what, item.root), []).append(item.source.label)  # beside traces as it should
        elif is_other and not (may_be_anything(where) and absolute(item.root) != where):
            notes.append(HealthNote(f"{item.source.label}: {item.sniffed.what}", "left out", where=where))
    for (what, root), names in other.items():
        named = f": {names[0]}" if len(names) == 1 else ""
        issue = f"{format_count(len(names), 'other file')} ({what}){named}"
        notes.append(HealthNote(issue, "left out", "info", where=f"{absolute(root)}/"))
    return notes


def _holds_events(file: Found) -> bool | None:
    """True where the file's format holds events; None where no format was recognised."""
    form = formats().get(file.sniffed.format or "")
    return None if form is None else form.holds_events


def _log_notes(logs: tuple[Source, ...]) -> list[HealthNote]:
    """Notes on logs of the whole run beside traces of some steps; of many only some are read."""
    effect = "not used for the verdict; `ddprof analyze FILE` reads it"
    notes = []
    if (more := len(logs) - MOST_LOGS) > 0:
        issue = f"{format_count(more, 'more file')} without events beside the traces"
        notes.append(HealthNote(issue, "not read; `ddprof analyze FILE` reads one", "info", where=logs[MOST_LOGS].path))
    for log in logs[:MOST_LOGS]:
        aside = formats()[log.format].aside
        reason = aside(log) if aside is not None else None
        issue = _named_log(log) + (f": {reason}" if reason else "")
        notes.append(HealthNote(issue, effect, "info", where=log.path))
    return notes


def _named_log(log: Source) -> str:
    return f"{log.label}: {formats()[log.format].what.partition(' (')[0]}"


def _nothing(paths: Sequence[str | os.PathLike[str]], files: list[Found], notes: list[HealthNote], refused: str) -> str:
    """The reason why no file was read. `refused`: why the first that could not be was not, "" without one."""
    if files and all(item.sniffed.format == "execution_trace" for item in files):
        which = "this is an execution trace" if len(files) == 1 else f"{len(files)} files are execution traces"
        return f"{files[0].source.label}: {which}, not a timeline; capture one with torch.profiler or `ddprof run`"
    if len(files) == 1 and files[0].sniffed.format is None:
        return f"{files[0].source.label}: {files[0].sniffed.what}"
    faults = [note.issue for note in notes if note.severity != "info"]
    if len(faults) == 1 and len(files) <= 1:
        return faults[0]
    if faults and not files:
        return f"{faults[0]} ({len(faults) - 1} more files could not be read either)"
    kinds, more = Counter(f.sniffed.what for f in files), max(0, len(paths) - MOST_NAMED)
    seen = "; ".join(f"{n} × {what}" for what, n in kinds.most_common(3)) or "no file named like one"
    named = ", ".join(os.fspath(p) for p in paths[:MOST_NAMED]) + (f" and {more:,} more" if more else "")
    return f"{named}: {NO_TRACE} ({seen})" + (refused and f". {refused}")


def _split_parts(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    """One source per worker, and notes on files left out as unreadable or superseded."""
    result: list[Source] = []
    notes: list[HealthNote] = []
    for name, form in formats().items():
        of_format = [s for s in sources if s.format == name]
        if form.chosen and of_format:
            kept, left_out = form.chosen(of_format)
            sources = [s for s in sources if s.format != name] + kept
            notes += left_out
    for source in sources:
        names = formats()[source.format].parts
        parts: list[str] | list[None] = [None]
        try:
            parts = names(source) if names else parts
        except NoUsableInput as error:
            notes.append(HealthNote(str(error), "left out", "error", where=source.path))
            continue
        result += [replace(source, part=part) for part in parts]
    return result, notes


_CAPTURED = ("kineto", "tensorflow")  # formats that capture writes, with companions


def attach(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    """Traces with their companion files attached, and the companions left over.

    A flight-recorder dump beside no trace of its folder is a source of its own. Where a folder holds the same dump as
    JSON and as pickle, one is used.
    """
    traces = [s for s in sources if s.format not in ("flight_recorder", "run_file")]
    dumps = [s for s in sources if s.format == "flight_recorder"]
    ours = [s for s in sources if s.format == "run_file"]
    sidecars = [s for s in ours if "sidecar" in file_name(s.path)]
    folders = {_folder(s) for s in traces if s.format == "kineto"}
    manifests: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in ours:
        if file_name(file.path).startswith("manifest."):
            manifests[_folder(file), host_in_name(file.path)].append(file.path)
    dumps_of, sidecars_of = _by_rank(dumps), _by_rank(sidecars)

    def with_manifests(source: Source) -> Source:
        hosts = {"", host_in_name(source.path)} if source.member is None else ()
        beside = sorted(path for host in hosts for path in manifests.get((_folder(source), host), ()))
        return replace(source, manifest_paths=tuple(beside)) if beside else source

    attached = [
        replace(
            with_manifests(trace),
            flight_recorder_path=_companion(trace, dumps_of),
            sidecar_path=_companion(trace, sidecars_of),
        )
        if trace.member is None and trace.format in _CAPTURED
        else trace
        for trace in traces
    ]
    used = {s.flight_recorder_path for s in attached}
    alone = list(map(with_manifests, _one_per_rank([d for d in dumps if _folder(d) not in folders])))
    processes = {(_folder(t), process_in_name(t.path)) for t in traces if t.member is None and process_in_name(t.path)}
    notes = [
        HealthNote(f"{d.label}: a flight-recorder dump that belongs to no trace", "not used", "info", where=d.path)
        for d in dumps
        if _folder(d) in folders
        and d.path not in used
        # What a traced process of a run folder left at its end is evidence of its failure, read there.
        and (_folder(d), process_in_name(d.path)) not in processes
    ]
    effect = "not used: unpack the archive to add settings, step timers and machines"
    for path, count in Counter(file.path for file in ours if file.member is not None).items():
        issue = f"{path}: {count} files of ddprof beside the traces, inside an archive"
        notes.append(HealthNote(issue, effect, where=path))
    return attached + alone, notes


def _folder(source: Source) -> str:
    """The folder of a file; for a member its folder inside the archive, so that archives stay separate."""
    return os.path.dirname(source.path if source.member is None else os.path.join(source.path, source.member))


_OfRanks = Mapping[tuple[str, int | None], Sequence[Source]]  # by folder, and by rank as the name states it


def _by_rank(files: Sequence[Source]) -> _OfRanks:
    by_rank: dict[tuple[str, int | None], list[Source]] = defaultdict(list)
    for file in files:
        by_rank[_folder(file), rank_in_name(file.path)].append(file)
    return by_rank


def _companion(trace: Source, candidates: _OfRanks) -> str | None:
    """The candidate in the same folder with the longest common prefix, of the same rank and, where both names state
    one, the same process, as a folder may hold two runs; None without one.
    """
    rank, name = rank_in_name(trace.path), file_name(trace.path)
    process = process_in_name(trace.path)
    of_rank = candidates.get((_folder(trace), rank), ())
    near = [c for c in of_rank if process is None or process_in_name(c.path) in (process, None)]
    if rank is None or not near:
        return None
    return max(near, key=lambda c: (common_length(name, file_name(c.path)), c.path)).path


def _one_per_rank(dumps: list[Source]) -> list[Source]:
    kept: dict[tuple[str, object], Source] = {}
    for dump in dumps:
        rank = rank_in_name(dump.member or dump.path)
        kept.setdefault((_folder(dump), dump.label if rank is None else rank), dump)
    return list(kept.values())

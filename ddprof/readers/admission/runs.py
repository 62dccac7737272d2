"""Sources grouped into runs: one run per folder, unless folders are one rank or one host each.

Whether files of a folder are one job is decided once they are read (`admission.jobs`).

Folders written by the nodes of one job are joined where they fit one job only. Such a part lacks ranks of the world
that it states. Parts are of one job where they state one world size, no rank twice, no two jobs by their launcher's
name, and began at one time. Once they are read their content must agree, too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial

from msgspec import Struct

from ddprof.errors import UsageError
from ddprof.model import HealthNote
from ddprof.readers.admission.jobs import NODES_JOIN_S
from ddprof.readers.admission.stated import stated_by
from ddprof.readers.files.names import file_name, name_of_ours, rank_in_name, stem, without_stamp
from ddprof.readers.files.remote import is_url
from ddprof.readers.formats import formats
from ddprof.readers.side_files.manifests import Manifest, part_of_job
from ddprof.readers.source import Source
from ddprof.units import format_count
from ddprof.untrusted.plain_text import encodable

_PER_RANK_FOLDER = re.compile(
    r"^(?:(?:node|host|machine|worker|rank|gpu|trainer|proc|global_rank)[_\-.]?\d+"
    r"|.*_ascend_(?:pt|ms)|ASCEND_PROFILER_OUTPUT)$",  # one of each rank, of torch_npu and MindSpore
    re.IGNORECASE,
)

Run = tuple[str, tuple[Source, ...]]
_LEAST_STEM = 4  # letters that two forms of a word share: "profiles", "profiler"


def group_runs(
    sources: list[Source], roots: list[str], window: int | None = None
) -> tuple[list[Run], list[HealthNote]]:
    """Sources by run, labelled by folder relative to what was given.

    Of several windows of a rank the last is kept, or number `window` (from 1), with a note. Raises UsageError where no
    rank has that one.
    """
    by_key: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        by_key.setdefault((run_folder(source), _own_run(source)), []).append(source)
    notes: list[HealthNote] = []
    runs = []
    given = {absolute(root).rstrip("/"): at for at, root in reversed(list(enumerate(roots)))}
    for (folder, own_run), members in by_key.items():
        kept = _one_window(members, window, notes)
        below = _label(folder, given)
        runs.append(("/".join(p for p in (below, own_run) if p and p != "."), tuple(kept)))
    named = labels([label for label, _ in runs], [_given(members) for _, members in runs])
    return [(encodable(name), members) for name, (_, members) in zip(named, runs, strict=True)], notes


def _given(members: tuple[Source, ...]) -> str:
    """Place of a run: the folder of its files, or its only file without suffixes.

    A folder that capture wrote is a run, however many ranks it holds.
    """
    first, folder = members[0], run_folder(members[0])
    is_file = len({(s.path, s.member) for s in members}) == 1 and not (first.sidecar_path or first.manifest_paths)
    return os.path.join(folder, stem(first.path)) if is_file else folder


def run_folder(source: Source) -> str:
    """The run's folder of a source: folders named for one rank or one host are parts of it."""
    folder = os.path.dirname(source.path)
    if source.member is not None:
        folder = os.path.join(source.path, os.path.dirname(source.member))
    while _PER_RANK_FOLDER.match(os.path.basename(folder)):
        folder = os.path.dirname(folder)
    return folder


def _own_run(source: Source) -> str:
    """Formats whose file is a whole run, unless capture wrote it as one rank of a run folder."""
    return stem(source.member or source.path) if formats()[source.format].is_run and source.sidecar_path is None else ""


def absolute(root: str) -> str:
    """The given path as the paths of files below it begin."""
    return root.rstrip("/") if is_url(root) else os.path.abspath(os.path.expanduser(root))


def _label(folder: str, given: Mapping[str, int]) -> str:
    """A folder relative to the first of the given paths, without a slash at their ends, that holds it."""
    parts = folder.rstrip("/").split("/")
    above = ["/".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
    root = min((path for path in above if path in given), key=given.__getitem__, default=None)
    return os.path.basename(folder) if root is None else folder.removeprefix(root).strip("/")


def _one_window(members: list[Source], window: int | None, notes: list[HealthNote]) -> list[Source]:
    """The last of the files that one rank wrote in sequence (windows, restarts), or the one of the given number."""
    by_writer: dict[tuple[str, str | None], list[Source]] = {}
    for source in members:
        by_writer.setdefault((_writer(source), source.part), []).append(source)
    kept, dropped, writers = [], 0, 1
    for written in by_writer.values():
        newest: dict[str, int] = {}  # by process
        for source in written:
            newest[_process(source)] = max(newest.get(_process(source), 0), source.mtime_ns)
        written.sort(key=partial(_order, newest))
        kept += written[-1:] if window is None else written[window - 1 : window]
        dropped = max(dropped, len(written) - 1)
        writers = max(writers, *Counter(attempt for attempt, _ in {_attempt(source) for source in written}).values())
    if not kept:
        raise UsageError(f"--window {window}: this run has {format_count(dropped + 1, 'window')}")
    if dropped:
        issue = f"{os.path.dirname(members[0].path)}: {dropped + 1} trace windows"
        which = "the last" if window is None else f"window {window}"
        effect = f"only {which} is analyzed; --window chooses one"
        notes.append(HealthNote(issue, effect, "info", where=members[0].path))
    if writers > 1:
        issue = f"{os.path.dirname(members[0].path)}: {writers} processes wrote files of one rank"
        effect = "a job was started again in this folder, or two jobs are mixed: one of them is analyzed"
        notes.append(HealthNote(issue, effect, where=members[0].path))
    return kept


def _writer(source: Source) -> str:
    name = source.member or source.path
    ours = name_of_ours(name)
    if ours:
        return ours["rank"]
    # Two files that differ in a time stamp only were written by one process; a bare stamp says nothing about who
    # wrote it.
    plain = without_stamp(name)
    is_telling = plain and (rank_in_name(name) is not None or plain != stem(name))
    return f"{os.path.dirname(name)}/{plain if is_telling else file_name(name)}"


def _process(source: Source) -> str:
    """The process that wrote a file, by capture's name for it; "" for other names."""
    return _attempt(source)[1]


def _attempt(source: Source) -> tuple[int, str]:
    """The launcher's number of the attempt, and the process, by capture's name for a file; 0 and "" for other names."""
    ours = name_of_ours(source.member or source.path)
    return (int(ours["restart"]), ours["pid"]) if ours else (0, "")


def _order(newest: Mapping[str, int], source: Source) -> tuple[int, bool, int, int, list[int], int]:
    """The place of a file in its rank's sequence. `newest`: the last time that each process wrote: of a job that was
    started again in the same folder, no number says which attempt was the last. One whose sidecar is not there is
    another job's.
    """
    is_whole = source.sidecar_path is not None
    ours = name_of_ours(source.member or source.path)
    if ours:
        return int(ours["restart"]), is_whole, newest[ours["pid"]], int(ours["window"] or 0), [], source.mtime_ns
    return (
        0,
        is_whole,
        0,
        0,
        [int(d) for d in re.findall(r"\d+", file_name(source.member or source.path))],
        source.mtime_ns,
    )


def labels(full: Sequence[str], given: Sequence[str]) -> list[str]:
    """The label of each run: the distinguishing part of its path below the given one (`full`), else the last
    distinguishing part of `given`. Runs with equal labels keep their full ones.

    A folder named `traces` distinguishes no run. Words that describe the format ("a PyTorch profiler trace") are no
    run's name.
    """
    last = (file_name(_telling(path)) or file_name(path) for path in given)
    short = [_telling(label) or other for label, other in zip(full, last, strict=True)]
    alike = {label for label, count in Counter(short).items() if count > 1}
    return [one if one not in alike else path or one for one, path in zip(short, full, strict=True)]


def _telling(path: str) -> str:
    """A path up to its last distinguishing part; "" without one."""
    while path and not _tells(os.path.basename(path)):
        above = os.path.dirname(path)
        path = above if above != path else ""
    return path


def _tells(name: str) -> bool:
    words = re.findall(r"[^\W\d_]+|\d+", name.lower())
    return not words or not all(any(_is_form(word, file_word) for file_word in _file_words()) for word in words)


def _is_form(word: str, other: str) -> bool:
    """True where two words differ only in their endings."""
    one, two = sorted((word.removesuffix("s"), other.removesuffix("s")), key=len)
    return one == two or (len(one) >= _LEAST_STEM and two.startswith(one) and len(two) - len(one) <= 1)


@cache
def _file_words() -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]{3,}", " ".join(form.what for form in formats().values()).lower()))


_NAMED = 3  # labels in one name


class _Part(Struct, frozen=True):
    at: int  # which of the runs
    run: Run
    ranks: frozenset[int]
    world_size: int
    stated: Manifest

    @property
    def name(self) -> str:
        """The folder's name."""
        folder = run_folder(self.run[1][0])
        return os.path.basename(folder if is_url(folder) else os.path.realpath(folder))  # `latest` is a link

    def may_join(self, other: _Part) -> bool:
        """True where nothing that both state separates their jobs."""
        jobs, one, two = {self.stated.job, other.stated.job} - {""}, self.stated.started_ns, other.stated.started_ns
        apart_ns = 0 if one is None or two is None else abs(one - two)
        return self.world_size == other.world_size and len(jobs) < 2 and apart_ns <= NODES_JOIN_S * 1e9


def together(runs: Sequence[Run]) -> tuple[list[Run], list[HealthNote]]:
    """The runs, with parts of one job joined as one run named after its parts, and notes on what was joined or not."""
    parts = [_part(at, run) for at, run in enumerate(runs)] if len(runs) > 1 else []
    notes: list[HealthNote] = []
    joined: dict[int, Run] = {}
    gone: set[int] = set()
    for group in _groups([part for part in parts if part is not None]):
        ranks = [rank for part in group for rank in part.ranks]
        names = list(dict.fromkeys(part.name for part in group))
        shown = " + ".join(names[:_NAMED]) + (" + ..." if len(names) > _NAMED else "")
        if len(set(ranks)) < len(ranks):
            issue = f"{len(group)} folders may be parts of more than one job of {group[0].world_size} ranks: {shown}"
            notes.append(HealthNote(issue, "each is analyzed alone; give the folders of one job together", "info"))
            continue
        issue = f"the ranks of {len(group)} folders are one job of {group[0].world_size}: {shown}"
        notes.append(HealthNote(issue, "analyzed as one run", "info", where=group[0].run[1][0].path))
        joined[group[0].at] = shown, tuple(source for part in group for source in part.run[1])
        gone |= {part.at for part in group[1:]}
    return [joined.get(at, run) for at, run in enumerate(runs) if at not in gone], notes


def _groups(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Groups of two or more parts that may be of one job."""
    groups: list[list[_Part]] = []
    for part in parts:
        near = next((group for group in groups if all(part.may_join(other) for other in group)), None)
        if near is None:
            groups.append([part])
        else:
            near.append(part)
    return (group for group in groups if len(group) > 1)


def _part(at: int, run: Run) -> _Part | None:
    """The job and ranks that a run states to be a part of; None where it is whole or states none."""
    manifests = sorted({path for source in run[1] for path in source.manifest_paths})
    stated = part_of_job(manifests)
    ranks, world_size = frozenset(stated.ranks), stated.world_size
    if not world_size:
        heads = stated_by(run[1])
        ranks = frozenset(head.rank for head in heads if head.rank is not None)
        sizes = {head.world_size for head in heads}
        world_size = sizes.pop() if len(sizes) == 1 else None
    if not world_size or not ranks or len(ranks) >= world_size:
        return None
    return _Part(at, run, ranks, world_size, stated)

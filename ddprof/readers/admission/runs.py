"""Sources grouped into runs: one run per folder, unless folders are one rank or one host each.

Whether files of a folder are one job is decided once they are read (`admission.jobs`).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial

from ddprof.errors import UsageError
from ddprof.model import HealthNote
from ddprof.readers.files.names import file_name, name_of_ours, rank_in_name, stem, without_stamp
from ddprof.readers.files.remote import is_url
from ddprof.readers.formats import formats
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
    for (folder, own_run), members in by_key.items():
        kept = _one_window(members, window, notes)
        below = _label(folder, roots)
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


def _label(folder: str, roots: list[str]) -> str:
    for root in roots:
        base = absolute(root)
        if folder == base or folder.startswith(base.rstrip("/") + "/"):
            return os.path.relpath(folder, base) if folder != base else ""
    return os.path.basename(folder)


def _one_window(members: list[Source], window: int | None, notes: list[HealthNote]) -> list[Source]:
    """The last of the files that one rank wrote in sequence (windows, restarts), or the one of the given number."""
    by_writer: dict[tuple[str, str | None], list[Source]] = {}
    for source in members:
        by_writer.setdefault((_writer(source), source.part), []).append(source)
    kept, dropped = [], 0
    for written in by_writer.values():
        newest: dict[str, int] = {}  # by process
        for source in written:
            newest[_process(source)] = max(newest.get(_process(source), 0), source.mtime_ns)
        written.sort(key=partial(_order, newest))
        kept += written[-1:] if window is None else written[window - 1 : window]
        dropped = max(dropped, len(written) - 1)
    if not kept:
        raise UsageError(f"--window {window}: this run has {format_count(dropped + 1, 'window')}")
    if dropped:
        issue = f"{os.path.dirname(members[0].path)}: {dropped + 1} trace windows"
        which = "the last" if window is None else f"window {window}"
        effect = f"only {which} is analyzed; --window chooses one"
        notes.append(HealthNote(issue, effect, "info", where=members[0].path))
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
    ours = name_of_ours(source.member or source.path)
    return ours["pid"] if ours else ""


def _order(newest: Mapping[str, int], source: Source) -> tuple[int, int, int, list[int], int]:
    """The place of a file in its rank's sequence. `newest`: the last time that each process wrote: of a job that was
    started again in the same folder, no number says which attempt was the last.
    """
    ours = name_of_ours(source.member or source.path)
    if ours:
        return int(ours["restart"]), newest[ours["pid"]], int(ours["window"] or 0), [], source.mtime_ns
    return 0, 0, 0, [int(d) for d in re.findall(r"\d+", file_name(source.member or source.path))], source.mtime_ns


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

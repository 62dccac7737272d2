"""The script lines in which a loader's workers were sampled during fetches, and the calls they wait in there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ddprof.readers.script.sampled import TRAINING, script_frame
from ddprof.readers.side_files.stacks import SampledProcess
from ddprof.sidecar import WorkerLine

MOST_LINES = 4  # of a rank; what is below waits for nothing that matters
_FETCH = re.compile(r"torch[/\\]utils[/\\]data[/\\]_utils[/\\]fetch\.py$")
# Calls that wait, by the text of the line: what is written in C has no frame of its own.
_CALLS = (
    ("lock", re.compile(r"\b(flock|lockf|acquire(?:_lock)?|msvcrt\.locking)\s*\(")),
    # A transaction that lets nobody else in: sqlite.org/lang_transaction, LOCK TABLE and advisory locks of servers.
    (
        "lock",
        re.compile(
            r"\b(execute)\s*\(.*?\b(?:begin\s+(?:immediate|exclusive)|lock\s+tables?|for\s+update|get_lock|pg_advisory_\w*lock)",
            re.IGNORECASE,
        ),
    ),
    ("network", re.compile(r"\b(recv(?:_into|from|_bytes)?|urlopen|get_object|download_\w+)\s*\(")),
    ("database", re.compile(r"\b(execute(?:many|script)?|fetch(?:one|all|many))\s*\(")),
)
# The same by the file and function of the innermost frame of a library that the line calls.
_LIBRARIES = (
    ("lock", re.compile(r"(?:multiprocessing[/\\]synchronize|threading)\.py (__enter__|acquire)$")),
    ("lock", re.compile(r"(?:^|[/\\])(?:filelock|portalocker|fasteners)[/\\]\S+ (\w+)$")),
    ("network", re.compile(r"(?:^|[/\\])(?:socket|ssl)\.py (\w+)$")),
    ("database", re.compile(r"(?:^|[/\\])(?:sqlite3|psycopg2?|pymysql|sqlalchemy|redis)[/\\]\S+ (\w+)$")),
)
_WITH = re.compile(r"^with\s+[\w.]*lock\w*\s*:", re.IGNORECASE)


def worker_lines(processes: Sequence[SampledProcess]) -> tuple[WorkerLine, ...]:
    """Over all workers of a rank, most samples first."""
    seen: Counter[tuple[str, int, str, str | None, str | None]] = Counter()
    of = 0
    for process in processes:
        if process.worker is None:
            continue
        for stack, _, thread, samples, *_ in process.counts.tolist():
            frames = list(_inwards(process, stack)) if thread == TRAINING else []
            if not any(_FETCH.search(process.frames[number][0]) for number in frames):
                continue
            of += samples
            place = _line(process, frames)
            if place is not None:
                seen[place] += samples
    return tuple(
        WorkerLine(file, line, function, samples, samples / of, call, kind)
        for (file, line, function, call, kind), samples in seen.most_common(MOST_LINES)
    )


def _inwards(process: SampledProcess, stack: int) -> Iterator[int]:
    """A stack's frames by number, innermost first."""
    while stack >= 0:
        stack, frame = process.stacks[stack]
        yield frame


def _line(process: SampledProcess, frames: Sequence[int]) -> tuple[str, int, str, str | None, str | None] | None:
    """The innermost user line within the fetch, its callee, and the kind of that."""
    for depth, number in enumerate(frames):
        if _FETCH.search(process.frames[number][0]):
            return None
        frame = script_frame(process.frames[number], process.path)
        if frame.is_user:
            inner = process.frames[frames[0]] if depth else None
            source = process.sources[number] if number < len(process.sources) else None
            return frame.file, frame.line, frame.function, *_waits_in(inner, source)
    return None


def _waits_in(inner: tuple[str, str, int] | None, source: str | None) -> tuple[str | None, str | None]:
    """(call, kind) of the innermost library frame, else of the line's text; (None, None) for anything else."""
    if inner is not None:
        for kind, pattern in _LIBRARIES:
            match = pattern.search(f"{inner[0]} {inner[1]}")
            if match:
                return ("acquire" if match[1] == "__enter__" else match[1]), kind
        return None, None
    for kind, pattern in _CALLS if source else ():
        match = pattern.search(source or "")
        if match:
            return match[1], kind
    return ("acquire", "lock") if source and _WITH.search(source) else (None, None)

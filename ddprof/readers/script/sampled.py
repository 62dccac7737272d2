"""Samples of stacks to the tables of RankTrace: stacks over time in windows, and sums over the whole run.

Of a loader's workers the lines in which they were sampled during fetches, and the calls they wait in there.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ddprof.model import SCRIPT_FRAMES, SCRIPT_SPANS, SCRIPT_STACKS, SCRIPT_TOTALS
from ddprof.readers.script.frames import Frame, is_library_at
from ddprof.readers.script.stacks import Script, merged_spans
from ddprof.readers.side_files.stacks import SampledProcess
from ddprof.sidecar import WorkerLine
from ddprof.tables import NULL, Array, Table, concat, distinct

TRAINING = 0  # number of the training thread
# A step has at least three parts (forward, backward, and what comes between): with fewer samples than parts, a sample
# stands for time of its neighbours.
MIN_PER_STEP = 3
MOMENT_NS = 500  # half of a microsecond, the resolution of most traces
_ELSEWHERE = "?"
_RECORDER = re.compile(r".*/(?=ddprof/(?:capture|settings|sidecar|untrusted)/)")  # packages that run in a job


class SampledScript(NamedTuple):
    """A rank's script tables: frames of the trace and samples, merged."""

    spans: Table
    stacks: Table
    frames: Table
    totals: Table


def with_samples(
    traced: Script, processes: Sequence[SampledProcess], tracks: Table, step_ns: int | None = None
) -> SampledScript:
    """Add samples to the frames of a trace. A trace with frames of its own keeps its spans; samples too far apart for
    its steps (`step_ns`) stand for their own moment alone.
    """
    frames, stacks, spans, totals = [traced.frames], [traced.stacks], [traced.spans], [SCRIPT_TOTALS.empty()]
    held_frames, held_stacks = len(traced.frames), len(traced.stacks)
    for process in processes:
        used = _used(process)
        row = np.cumsum(used) - 1 + held_stacks  # of each used stack
        frame = np.array([entry[1] for entry in process.stacks], np.int64)
        outer = np.array([entry[0] for entry in process.stacks], np.int64)
        wanted = np.unique(frame[used])
        named = [
            script_frame(process.frames[number], process.path)._replace(is_generator=number in process.generators)
            for number in wanted.tolist()
        ]
        frames.append(_frames(named))
        above = np.where(outer[used] < 0, NULL, row[np.maximum(outer[used], 0)])
        stacks.append(
            SCRIPT_STACKS.table({"frame": np.searchsorted(wanted, frame[used]) + held_frames, "outer": above})
        )
        totals.append(_totals(process, row))
        track = _track(process, tracks)
        if track is not None and not len(traced.spans):
            spans.append(_spans(process, row, track, step_ns))
        held_frames += len(named)
        held_stacks += int(used.sum())
    return SampledScript(
        concat(SCRIPT_SPANS, spans),
        concat(SCRIPT_STACKS, stacks),
        concat(SCRIPT_FRAMES, frames),
        concat(SCRIPT_TOTALS, totals),
    )


def is_coarse(process: SampledProcess, step_ns: int | None) -> bool:
    """True where samples of a window are too far apart to place them in a part of a step."""
    return bool(len(process.samples) and _is_rare(np.median(process.samples[:, 3]), step_ns))


def _is_rare(period_ns: Array, step_ns: int | None) -> Array:
    """Mask of periods that are longer than a part of a step (MIN_PER_STEP)."""
    return np.asarray(period_ns * MIN_PER_STEP > (np.inf if step_ns is None else step_ns))


def _used(process: SampledProcess) -> Array:
    """Mask of stacks that were sampled, or lie around a sampled one."""
    used = np.zeros(len(process.stacks), bool)
    used[process.counts[:, 0]] = True
    used[process.samples[:, 2]] = True
    for at in range(len(process.stacks) - 1, -1, -1):  # a caller stands before what it calls
        outer = process.stacks[at][0]
        if used[at] and outer >= 0:
            used[outer] = True
    return used


def _frames(named: Sequence[Frame]) -> Table:
    columns = list(zip(*named, strict=True)) or [()] * len(Frame._fields)
    return SCRIPT_FRAMES.table(dict(zip(Frame._fields, columns, strict=True)))


def script_frame(written: tuple[str, str, int], path: Sequence[str]) -> Frame:
    """A sampled frame (file, function, line) as traces write it: the file without its prefix of sys.path (`path`)."""
    file, function, line = written
    if not file:
        return Frame("", NULL, function, False)
    file = _plain(file)
    if recorder := _RECORDER.match(file):
        return Frame(file[recorder.end() :], line, function, False)
    prefixes = [f"{_plain(prefix).rstrip('/')}/" for prefix in path if len(prefix) > 1]
    longest = max((prefix for prefix in prefixes if file.startswith(prefix)), key=len, default="")
    short = file.removeprefix(longest)
    return Frame(short, line, function, not is_library_at(file, short))


def _plain(path: str) -> str:
    """The path without steps up: a script may be launched as "../project/train.py"."""
    return posixpath.normpath(path) if "/../" in path else path


def _totals(process: SampledProcess, row: Array) -> Table:
    """SCRIPT_TOTALS of a process: the rows of one stack, phase and thread as one."""
    (stack, phase, thread), which = distinct(*process.counts[:, :3].T)
    sums = np.zeros((len(stack), 4), np.int64)
    np.add.at(sums, which, process.counts[:, 3:])
    if process.worker is None:
        names = [name for name, _ in process.threads]
        threads = ["" if n == TRAINING else names[n] if n < len(names) else _ELSEWHERE for n in thread.tolist()]
    else:
        threads = [f"worker {process.worker}"] * len(stack)
    phases = [process.phases[n] if n < len(process.phases) else _ELSEWHERE for n in phase.tolist()]
    sampled = {"samples": sums[:, 0], "time_ns": sums[:, 1], "late_ns": sums[:, 2], "steps": sums[:, 3]}
    return SCRIPT_TOTALS.table({"thread": threads, "phase": phases, "stack": row[stack], **sampled})


def _track(process: SampledProcess, tracks: Table) -> int | None:
    """The training thread's track, by its kernel thread number; None for a worker, or without events."""
    if process.worker is not None or not process.threads or process.threads[TRAINING][1] is None:
        return None
    rows = np.flatnonzero((tracks["tid"] == str(process.threads[TRAINING][1])) & (tracks["device"] == NULL))
    return int(rows[0]) if len(rows) else None


def _spans(process: SampledProcess, row: Array, track: int, step_ns: int | None) -> Table:
    """SCRIPT_SPANS of the training thread. A sample stands for the time halfway to its neighbours, unless these are
    over two periods away. One that would stand for more than a part of a step (MIN_PER_STEP), as samples are rare where
    they cost much, says what ran at its moment and not for how long.
    """
    at, late, stack, period = process.samples.T
    if not len(at):
        return SCRIPT_SPANS.empty()
    until = at + late  # to here it was in this stack
    until[:-1] = np.minimum(until[:-1], at[1:])
    is_rare = _is_rare(period, step_ns)
    half = np.where(is_rare, MOMENT_NS, period // 2)
    start, end = at - half, np.where(is_rare, at, until) + half
    is_near = (at[1:] - until[:-1] <= 2 * period[1:]) & ~(is_rare[1:] | is_rare[:-1])
    middle = (until[:-1] + at[1:]) // 2
    end[:-1] = np.where(is_near, middle, np.minimum(end[:-1], middle))
    start[1:] = np.where(is_near, middle, np.maximum(start[1:], middle))
    table = merged_spans(np.full(len(at), track), start, end, row[stack], period)
    return table.take(table["end_ns"] > table["start_ns"])


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

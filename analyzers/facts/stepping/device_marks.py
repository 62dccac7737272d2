"""Host marks of steps recovered from a trace with marks on the device alone.

The profiler draws a host range on every stream that ran work launched within it, from that work's first start to its
last end. So the host passed a mark after launching the last work under the previous mark and before launching the first
under this one. Launches in between on streams without marks are divided at the host's longest pause, since a host
pauses between steps, for its next batch or for the device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.facts.device import launch_rows
from ddprof.analyzers.facts.events import rows_of, times
from ddprof.analyzers.facts.model import STEPS
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.stepping.device_time import NEVER
from ddprof.model import DEVICE_KINDS, Kind, RankTrace
from ddprof.tables import Array, Table, of_kinds

LONGER = 3  # times the usual pause before a step: beyond it calls are missing in the file, not in the program
PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d+)")
OPTIMIZER = re.compile(r"^Optimizer\.step#|^ddprof::optimizer$|^optimizer[._ ]?step|optimizer_step", re.IGNORECASE)
_LONGEST_NUMBER = 15  # digits: a step each microsecond for thirty years


def steps_of_device_marks(trace: RankTrace) -> Table | None:
    """STEPS, with the host's marks as start and end; None where the device carries none."""
    events = trace.events
    marks = rows_of(trace, Kind.GPU_ANNOTATION, matches(PROFILER_STEP, trace.strings))
    if not len(marks):
        return None
    index, of_step = np.unique(numbers_of(trace.strings, events["name"][marks]), return_inverse=True)
    start, end = np.full(len(index), NEVER), np.zeros(len(index), np.int64)
    opens, closes = times(events, marks)
    np.minimum.at(start, of_step, opens)
    np.maximum.at(end, of_step, closes)
    rows = np.flatnonzero(of_kinds(events["kind"], DEVICE_KINDS))
    calls = launch_rows(trace)[rows]
    rows, calls = rows[calls >= 0], calls[calls >= 0]
    at, launch = events["ts_ns"][rows], events["ts_ns"][calls]
    is_marked = np.isin(events["track"][rows], events["track"][marks])
    if not is_marked.any():  # annotations have tracks of their own
        is_marked[:] = True
    step = np.searchsorted(start, at, side="right") - 1
    in_step = is_marked & (step >= 0)
    first, last = np.full(len(index), NEVER), np.zeros(len(index), np.int64)
    np.minimum.at(first, step[in_step], launch[in_step])
    np.maximum.at(last, step[in_step], launch[in_step])
    called = np.minimum(first, start)
    if not in_step.any() or (np.diff(start) <= 0).any() or (np.diff(called) <= 0).any():
        return host_steps(index, start, np.append(start[1:], end[-1]))
    called = _before_what_follows(called, last, np.sort(launch[~is_marked]))
    final = max(int(launch.max()) + 1, int(called[-1]) + 1)
    opened = _after_what_precedes(trace, called, calls)
    return host_steps(index, opened, np.append(opened[1:], final))


def _after_what_precedes(trace: RankTrace, called: Array, calls: Array) -> Array:
    """`called` moved to the start of the host's pause before each step; ns, shape (steps,).

    A batch that is waited for or made belongs to the step that uses it; the optimizer's range to the step before. The
    first step begins with the recording of the threads that launch.
    """
    events = trace.events
    host = of_kinds(events["kind"], (Kind.ANNOTATION, Kind.CPU_OP))
    optimizer = np.flatnonzero(host & matches(OPTIMIZER, trace.strings)[events["name"]])
    rows = np.concatenate((np.unique(calls), optimizer))
    rows = rows[np.argsort(events["ts_ns"][rows], kind="stable")]
    done = np.maximum.accumulate(times(events, rows)[1])
    recorded = events["ts_ns"][host & np.isin(events["track"], events["track"][calls])]
    opens = int(recorded.min()) if len(recorded) else int(called[0])
    before = np.searchsorted(events["ts_ns"][rows], called) - 1
    pause = np.maximum(0, called - np.where(before >= 0, done[np.maximum(before, 0)], opens))
    return np.asarray(called - np.minimum(pause, round(LONGER * float(np.median(pause)))))


def _before_what_follows(called: Array, last: Array, loose: Array) -> Array:
    """`called` moved before the launches in `loose` that belong to the same step; ns, shape (steps,).

    `last`: the last launch known to belong to each step. Every mark moves across the same number of launches, the most
    frequent one, as steps begin with the same work.
    """
    between = [
        loose[np.searchsorted(loose, end, side="right") : np.searchsorted(loose, begin)]
        for end, begin in zip(last[:-1], called[1:], strict=True)
    ]
    counts = [
        len(these) - int(np.argmax(np.diff(np.concatenate(([end], these, [begin])))))
        for end, these, begin in zip(last[:-1], between, called[1:], strict=True)
    ]
    if not counts:
        return called
    values, times = np.unique(counts, return_counts=True)
    usual = int(values[np.argmax(times)])
    before_first = loose[: np.searchsorted(loose, called[0])]
    moved = called.copy()
    for step, these in enumerate([before_first, *between]):
        if usual and len(these) >= usual:
            moved[step] = these[len(these) - usual]
    return moved


def numbers_of(strings: Sequence[str], names: Array) -> Array:
    """The step numbers in marks; a mark whose number cannot be parsed gets its predecessor's plus one."""
    numbers: list[int] = []
    for name in names.tolist():
        match = PROFILER_STEP.match(strings[name])
        is_usable = match is not None and len(match[1]) <= _LONGEST_NUMBER
        numbers.append(int(match[1]) if match and is_usable else numbers[-1] + 1 if numbers else 0)
    return np.array(numbers, np.int64)


def host_steps(index: Array, start_ns: Array, end_ns: Array) -> Table:
    """STEPS from one host mark to the next; device_time.py converts them to device time."""
    return STEPS.table(
        {"index": index, "start_ns": start_ns, "end_ns": end_ns, "mark_ns": start_ns, "mark_end_ns": end_ns}
    )

"""Batches that the training thread makes by operators on the CPU, before the first launch of a step.

Resizing, normalising, stacking in the training process leave operators that launch nothing, then a copy of the batch
to the device. Between a step's mark and its first kernel nothing else computes on the host: an optimizer that runs on
the CPU comes after the kernels of its step.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import HOST_SPANS, NO_STRING, Work
from ddprof.analyzers.facts.names import is_to_device
from ddprof.causes import CAUSE_CODE
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table, concat

# An operator that launches nothing and computes nothing (a view, an allocation) takes some microseconds: as with
# stalls, what takes this long is no scatter of such calls.
MIN_WORK_NS = 100_000


def prepared_batches(trace: RankTrace, threads: Array, ops: Table, marks_ns: Array) -> Table:
    """HOST_SPANS of cause "dataloader", at most one per step and thread: from the first such operator to the last.

    `threads`: host tracks; `ops`: DEVICE_OPS; `marks_ns`: boundaries of the steps on the host. The name is that of the
    longest operator.
    """
    events = trace.events
    tables = [HOST_SPANS.empty()]
    for thread in threads.tolist():
        launched = ops.take((ops["thread"] == thread) & (ops["launch_ns"] != NULL))
        kernels = np.sort(launched["launch_ns"][launched["work"] != Work.COPY])
        to_device = is_to_device(trace.strings)[launched["name"]] & (launched["work"] == Work.COPY)
        copies = np.sort(launched["launch_ns"][to_device])
        if not len(kernels) or not len(copies) or len(marks_ns) < 2:
            continue
        work = _computing(trace, thread, np.sort(launched["launch_ns"]))
        begin = marks_ns[:-1]
        first = np.append(kernels, np.iinfo(np.int64).max)[np.searchsorted(kernels, begin)]
        last_copy = np.searchsorted(copies, np.minimum(first, marks_ns[1:])) - 1
        until = np.where(last_copy >= 0, copies[np.maximum(last_copy, 0)], begin)
        start, end = events["ts_ns"][work], events["ts_ns"][work] + events["dur_ns"][work]
        step = np.searchsorted(begin, start, side="right") - 1
        inside = (step >= 0) & (end <= until[np.maximum(step, 0)])
        tables += [_span(trace, work[inside & (step == number)]) for number in np.unique(step[inside]).tolist()]
    return concat(HOST_SPANS, tables)


def _computing(trace: RankTrace, thread: int, launches_ns: Array) -> Array:
    """Rows of the operators of a thread that take long and launch nothing."""
    events = trace.events
    rows = np.flatnonzero(
        (events["kind"] == Kind.CPU_OP) & (events["track"] == thread) & (events["dur_ns"] >= MIN_WORK_NS)
    )
    start = events["ts_ns"][rows]
    end = start + events["dur_ns"][rows]
    return np.asarray(rows[np.searchsorted(launches_ns, start) == np.searchsorted(launches_ns, end)])


def _span(trace: RankTrace, rows: Array) -> Table:
    events = trace.events
    longest = rows[int(np.argmax(events["dur_ns"][rows]))]
    return HOST_SPANS.table(
        {
            "start_ns": [int(events["ts_ns"][rows].min())],
            "end_ns": [int((events["ts_ns"][rows] + events["dur_ns"][rows]).max())],
            "thread": [int(events["track"][longest])],
            "cause": [CAUSE_CODE["dataloader"]],
            "name": [int(events["name"][longest])],
            "operator": [NO_STRING],
        }
    )

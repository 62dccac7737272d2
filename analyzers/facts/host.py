"""Host activity of a rank: loader fetches, blocking calls, allocation, collection, saving, phases, stream waits."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import HOST_SPANS, NO_STRING, PHASES, STREAM_WAITS, Phase, Work
from ddprof.analyzers.facts.names import (
    is_allocator_call,
    is_checkpoint,
    is_comm_annotation,
    is_dataloader,
    is_evaluation,
    is_evaluation_fetch,
    is_gc,
    is_sync_call,
    is_to_device,
    is_wait_event,
    matches,
)
from ddprof.analyzers.facts.script.occupants import script_occupants
from ddprof.analyzers.facts.script.prepared import prepared_in_loop, taken_from_queue
from ddprof.analyzers.facts.waiting_launches import waited_for, waiting_launches
from ddprof.causes import CAUSE_CODE
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table, among, concat, of_kinds

_PHASES = (
    (
        Phase.FORWARD,
        re.compile(r"^ddprof::forward$|DataParallel\.forward$|^DeepSpeedEngine\.forward|^##? ?forward|^forward$", re.I),
    ),
    (Phase.BACKWARD, re.compile(r"^ddprof::backward$|^##? ?backward|^backward$", re.I)),
    (Phase.OPTIMIZER, re.compile(r"^ddprof::optimizer$|^Optimizer\.step#|^##? ?optimizer", re.I)),
)
# An operator that launches nothing and computes nothing (a view, an allocation) takes some microseconds: as with
# stalls, what takes this long is no scatter of such calls.
MIN_WORK_NS = 100_000


def host_spans(trace: RankTrace, threads: Array, ops: Table, marks_ns: Array) -> Table:
    """HOST_SPANS, by start: the spans of the training threads (`threads`: host tracks) that explain idle time.

    `marks_ns`: boundaries of the steps on the host, sorted.
    Spans of one cause may nest, and spans of several may overlap: gaps.py has their precedence.
    """
    events, strings = trace.events, trace.strings
    kind, name = events["kind"], events["name"]
    here = among(events["track"], threads)
    ranges = here & of_kinds(kind, (Kind.ANNOTATION, Kind.CPU_OP))
    annotated = here & of_kinds(kind, (Kind.ANNOTATION, Kind.PYTHON))
    calls = here & (kind == Kind.RUNTIME)
    selected = (
        ("dataloader", ranges & is_dataloader(strings)[name]),
        ("host_sync", calls & is_sync_call(strings)[name]),
        ("allocator", calls & is_allocator_call(strings)[name]),
        ("gc", annotated & is_gc(strings)[name]),
        ("checkpoint", annotated & is_checkpoint(strings)[name]),
    )
    named = _spans(trace, [(np.flatnonzero(mask), cause) for cause, mask in selected])
    in_phase = phase_ranges(phases(trace))
    trains = intervals.overlap(in_phase[Phase.BACKWARD], *named.bounds) > 0
    named = named.take(~(is_evaluation(strings)[named["name"]] & trains))
    tables = [_without_what_loaders_read(_without_fetches_to_evaluate(named, is_evaluation_fetch(strings)))]
    tables += [
        _blocking_copies(ops, threads),
        _blocking_launches(ops, threads),
        script_occupants(trace, threads, marks_ns),
    ]
    tables.append(taken_from_queue(trace, threads, in_phase, marks_ns))
    tables.append(_prepared_batches(trace, threads, ops, marks_ns))
    if not len(ops):  # a CPU rank: its operators are its compute
        tables.append(prepared_in_loop(trace, threads, in_phase, marks_ns))
    spans = concat(HOST_SPANS, tables)
    return _with_operators(trace, spans.take(np.argsort(spans["start_ns"], kind="stable")))


def _with_operators(trace: RankTrace, spans: Table) -> Table:
    """HOST_SPANS, by start, with each blocking call named by the innermost operator around it, the one that blocks; an
    operator that shares its External id may be over by then.
    """
    events, operator = trace.events, np.full(len(spans), NO_STRING)
    blocks = spans["cause"] == CAUSE_CODE["host_sync"]
    for thread in np.unique(spans["thread"][blocks]).tolist():
        calls = np.flatnonzero(blocks & (spans["thread"] == thread))
        begin, finish = spans["start_ns"][calls], spans["end_ns"][calls]
        rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["track"] == thread))
        start, end = events["ts_ns"][rows], events["ts_ns"][rows] + events["dur_ns"][rows]
        following = np.minimum(np.searchsorted(begin, start), len(calls) - 1)
        rows = rows[(begin[following] >= start) & (finish[following] <= end)]
        rows = rows[np.lexsort((-events["dur_ns"][rows], events["ts_ns"][rows]))]
        start = events["ts_ns"][rows]
        end, parent, _ = intervals.nested(start, start + events["dur_ns"][rows])
        end, parent = np.append(end, np.iinfo(np.int64).max), np.append(parent, -1)  # row -1 is none
        around = np.searchsorted(start, begin, side="right") - 1
        while (is_over := end[around] < finish).any():
            around[is_over] = parent[around[is_over]]
        inside = around >= 0
        operator[calls[inside]] = events["name"][rows[around[inside]]]
    return spans.replace(operator=operator)


def _without_fetches_to_evaluate(spans: Table, evaluation: Array) -> Table:
    """HOST_SPANS without fetches inside an evaluation, which belong to it. `evaluation`: mask of the trace's strings
    that name one.
    """
    is_fetch = spans["cause"] == CAUSE_CODE["dataloader"]
    is_inside = np.zeros(len(spans), bool)
    evaluating = evaluation[spans["name"]]
    for thread in np.unique(spans["thread"][evaluating]).tolist():
        on_thread = spans["thread"] == thread
        fetches = intervals.union(*spans.take(evaluating & on_thread).bounds)
        is_inside |= on_thread & (intervals.overlap(fetches, *spans.bounds) == spans["end_ns"] - spans["start_ns"])
    return spans.take(~(is_inside & is_fetch))


def _without_what_loaders_read(spans: Table) -> Table:
    """HOST_SPANS without saves and loads inside a loader's fetch: `torch.load` may read a pickled sample."""
    is_fetch = spans["cause"] == CAUSE_CODE["dataloader"]
    is_inside = np.zeros(len(spans), bool)
    for thread in np.unique(spans["thread"][is_fetch]).tolist():
        on_thread = spans["thread"] == thread
        fetches = intervals.union(*spans.take(is_fetch & on_thread).bounds)
        length = spans["end_ns"] - spans["start_ns"]
        is_inside |= on_thread & (intervals.overlap(fetches, *spans.bounds) == length)
    return spans.take(~is_inside | (spans["cause"] != CAUSE_CODE["checkpoint"]))


def _blocking_copies(ops: Table, threads: Array) -> Table:
    """Copy calls that blocked; even an asynchronous copy of pageable memory returns only when done."""
    copies = ops.take((ops["work"] == Work.COPY) & waited_for(ops) & among(ops["thread"], threads))
    return _waits(copies, copies["launch_ns"], copies["launch_end_ns"])


def _blocking_launches(ops: Table, threads: Array) -> Table:
    """Waits of launch calls for their own kernels; until a kernel begins, a call takes what it takes anyway."""
    kernels = ops.take(waiting_launches(ops) & among(ops["thread"], threads))
    return _waits(kernels, *kernels.bounds)


def _waits(ops: Table, start_ns: Array, end_ns: Array) -> Table:
    """HOST_SPANS in which the host waits for these operations."""
    return HOST_SPANS.table(
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "thread": ops["thread"],
            "cause": np.full(len(ops), CAUSE_CODE["host_sync"]),
            "name": ops["name"],
            "operator": np.full(len(ops), NO_STRING),
        }
    )


def _spans(trace: RankTrace, by_cause: Sequence[tuple[Array, str]]) -> Table:
    """HOST_SPANS of some events (rows of the trace) by cause."""
    events = trace.events
    rows = np.concatenate([rows for rows, _ in by_cause])
    cause = np.repeat([CAUSE_CODE[cause] for _, cause in by_cause], [len(rows) for rows, _ in by_cause])
    return HOST_SPANS.table(
        {
            "start_ns": events["ts_ns"][rows],
            "end_ns": events["ts_ns"][rows] + events["dur_ns"][rows],
            "thread": events["track"][rows],
            "cause": cause,
            "name": events["name"][rows],
            "operator": np.full(len(rows), NO_STRING),
        }
    )


@remembered
def phases(trace: RankTrace) -> Table:
    """Forward, backward and optimizer ranges on the host, where annotated; sorted by start."""
    events = trace.events
    tables = []
    for phase, pattern in _PHASES:
        rows = np.flatnonzero((events["kind"] == Kind.ANNOTATION) & matches(pattern, trace.strings)[events["name"]])
        start = events["ts_ns"][rows]
        columns = {
            "start_ns": start,
            "end_ns": start + events["dur_ns"][rows],
            "phase": np.full(len(rows), phase),
            "name": events["name"][rows],
        }
        tables.append(PHASES.table(columns))
    table = concat(PHASES, tables)
    return table.take(np.argsort(table["start_ns"], kind="stable"))


def phase_ranges(ranges: Table) -> dict[Phase, Intervals]:
    """Intervals of the host in each phase, those of optimizers with the closures that these call; `ranges`: PHASES."""
    return {phase: intervals.union(*ranges.take(ranges["phase"] == phase).bounds) for phase in Phase}


def stream_waits(trace: RankTrace, threads: Array) -> Table:
    """cudaStreamWaitEvent calls of the training threads, except those that launch a collective."""
    events = trace.events
    rows = np.flatnonzero((events["kind"] == Kind.RUNTIME) & is_wait_event(trace.strings)[events["name"]])
    rows = rows[among(events["track"][rows], threads)]
    launching = np.zeros(len(rows), bool)
    comm = np.flatnonzero((events["kind"] == Kind.ANNOTATION) & is_comm_annotation(trace.strings)[events["name"]])
    comm = np.union1d(comm, trace.collectives["row"][events["kind"][trace.collectives["row"]] == Kind.CPU_OP])
    for track in np.unique(events["track"][rows]):
        ranges = comm[events["track"][comm] == track]
        on_track = events["track"][rows] == track
        start, reach = (
            events["ts_ns"][ranges],
            np.maximum.accumulate(events["ts_ns"][ranges] + events["dur_ns"][ranges]),
        )
        at = np.searchsorted(start, events["ts_ns"][rows[on_track]], side="right") - 1
        launching[on_track] = (
            (at >= 0) & (reach[np.maximum(at, 0)] >= events["ts_ns"][rows[on_track]]) if len(ranges) else False
        )
    rows = rows[~launching]
    return STREAM_WAITS.table({"call_ns": events["ts_ns"][rows], "thread": events["track"][rows]})


def _prepared_batches(trace: RankTrace, threads: Array, ops: Table, marks_ns: Array) -> Table:
    """HOST_SPANS of cause "dataloader", at most one per step and thread: batches made in the training thread by CPU
    operators before the step's first launch; from the first such operator to the last.

    Resizing, normalising and stacking leave operators that launch nothing, then a copy to the device. Nothing else
    computes on the host between a step's mark and its first kernel: an optimizer on the CPU runs after the kernels of
    its step.

    `threads`: host tracks; `ops`: DEVICE_OPS; `marks_ns`: boundaries of the steps on the host. Named after the longest
    operator.
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
    """Rows of a thread's long operators that launch nothing."""
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

"""Host activity of a rank: loader fetches, blocking calls, allocation, collection, saving, phases, stream waits."""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import waited_for, waiting_launches
from ddprof.analyzers.facts.model import HOST_SPANS, NO_STRING, PHASES, SPANS, Phase, Work, occupied
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
    rows_of,
    times,
)
from ddprof.analyzers.facts.script.occupants import script_occupants
from ddprof.analyzers.facts.script.prepared import prepared_in_loop, taken_from_queue
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
    by_cause = [(cause, np.flatnonzero(mask)) for cause, mask in selected]
    each = [occupied(cause, times(events, rows), events["track"][rows], name[rows]) for cause, rows in by_cause]
    named = concat(HOST_SPANS, each)
    in_phase = phase_ranges(phases(trace))
    trains = intervals.overlap(in_phase[Phase.BACKWARD], *named.bounds) > 0
    named = named.take(~(is_evaluation(strings)[named["name"]] & trains))
    evaluated = intervals.union(*named.bounds_of(is_evaluation(strings)[named["name"]]))
    named = _without_those_inside(named, is_evaluation_fetch(strings)[named["name"]], "dataloader")
    is_fetch = named["cause"] == CAUSE_CODE["dataloader"]
    tables = [
        _without_those_inside(named, is_fetch, "checkpoint"),  # `torch.load` may read a pickled sample
        *_blocking(ops, threads),
        script_occupants(trace, threads, marks_ns, evaluated, intervals.merge(*in_phase.values())),
        taken_from_queue(trace, threads, in_phase, marks_ns),
        _prepared_batches(trace, threads, ops, marks_ns),
    ]
    if not len(ops):  # a CPU rank: its operators are its compute
        tables.append(prepared_in_loop(trace, threads, in_phase, marks_ns))
    return _with_operators(trace, concat(HOST_SPANS, tables).ordered())


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
        start, end = times(events, rows)
        following = np.minimum(np.searchsorted(begin, start), len(calls) - 1)
        rows = rows[(begin[following] >= start) & (finish[following] <= end)]
        start, end = times(events, rows)
        end, parent, _ = intervals.nested(start, end)
        end, parent = np.append(end, np.iinfo(np.int64).max), np.append(parent, -1)  # row -1 is none
        around = np.searchsorted(start, begin, side="right") - 1
        while (is_over := end[around] < finish).any():
            around[is_over] = parent[around[is_over]]
        inside = around >= 0
        operator[calls[inside]] = events["name"][rows[around[inside]]]
    return spans.replace(operator=operator)


def _without_those_inside(spans: Table, around: Array, cause: str) -> Table:
    """HOST_SPANS without spans of a cause inside others (`around`: mask) of their thread, to which they belong."""
    is_inside, length = np.zeros(len(spans), bool), spans["end_ns"] - spans["start_ns"]
    for thread in np.unique(spans["thread"][around]).tolist():
        on_thread = spans["thread"] == thread
        outer = intervals.union(*spans.bounds_of(around & on_thread))
        is_inside |= on_thread & (intervals.overlap(outer, *spans.bounds) == length)
    return spans.take(~is_inside | (spans["cause"] != CAUSE_CODE[cause]))


def _blocking(ops: Table, threads: Array) -> list[Table]:
    """HOST_SPANS in which calls wait: for copies, as even an asynchronous copy of pageable memory returns only when
    done, and for their own kernels; until a kernel begins, a call takes what it takes anyway.
    """
    here = among(ops["thread"], threads)
    copies = ops.take((ops["work"] == Work.COPY) & waited_for(ops) & here)
    kernels = ops.take(waiting_launches(ops) & here)
    return [
        occupied("host_sync", (copies["launch_ns"], copies["launch_end_ns"]), copies["thread"], copies["name"]),
        occupied("host_sync", kernels.bounds, kernels["thread"], kernels["name"]),
    ]


@remembered
def phases(trace: RankTrace) -> Table:
    """Forward, backward and optimizer ranges on the host, where annotated; sorted by start."""
    events = trace.events
    tables = []
    for phase, pattern in _PHASES:
        rows = rows_of(trace, Kind.ANNOTATION, matches(pattern, trace.strings))
        start, end = times(events, rows)
        tables.append(PHASES.table({"start_ns": start, "end_ns": end, "phase": phase, "name": events["name"][rows]}))
    return concat(PHASES, tables).ordered()


def phase_ranges(ranges: Table) -> dict[Phase, Intervals]:
    """Intervals of the host in each phase, those of optimizers with the closures that these call; `ranges`: PHASES."""
    return {phase: intervals.union(*ranges.bounds_of(ranges["phase"] == phase)) for phase in Phase}


def stream_waits(trace: RankTrace, threads: Array) -> Table:
    """cudaStreamWaitEvent calls of the training threads, except those that launch a collective."""
    events = trace.events
    rows = rows_of(trace, Kind.RUNTIME, is_wait_event(trace.strings), threads)
    launching = np.zeros(len(rows), bool)
    comm = rows_of(trace, Kind.ANNOTATION, is_comm_annotation(trace.strings))
    comm = np.union1d(comm, trace.collectives["row"][events["kind"][trace.collectives["row"]] == Kind.CPU_OP])
    for track in np.unique(events["track"][rows]):
        ranges = comm[events["track"][comm] == track]
        on_track = events["track"][rows] == track
        start, end = times(events, ranges)
        called_ns = events["ts_ns"][rows[on_track]]
        at = np.searchsorted(start, called_ns, side="right") - 1
        launching[on_track] = np.append(np.maximum.accumulate(end), NULL)[at] >= called_ns
    rows = rows[~launching]
    start, end = times(events, rows)
    return SPANS.table({"start_ns": start, "end_ns": end})


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
        start, end = times(events, work)
        step = np.searchsorted(begin, start, side="right") - 1
        inside = (step >= 0) & (end <= until[np.maximum(step, 0)])
        for number in np.unique(step[inside]).tolist():
            rows = work[inside & (step == number)]
            made = times(events, rows)
            longest = rows[int(np.argmax(events["dur_ns"][rows]))]
            whole = np.array([made[0].min()]), np.array([made[1].max()])
            tables.append(occupied("dataloader", whole, thread, int(events["name"][longest])))
    return concat(HOST_SPANS, tables)


def _computing(trace: RankTrace, thread: int, launches_ns: Array) -> Array:
    """Rows of a thread's long operators that launch nothing."""
    events = trace.events
    rows = np.flatnonzero(
        (events["kind"] == Kind.CPU_OP) & (events["track"] == thread) & (events["dur_ns"] >= MIN_WORK_NS)
    )
    start, end = times(events, rows)
    return np.asarray(rows[np.searchsorted(launches_ns, start) == np.searchsorted(launches_ns, end)])

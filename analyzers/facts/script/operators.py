"""Operators that the training thread calls outside the phases of the step and in the optimizer, by stack."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.events import times
from ddprof.analyzers.facts.model import SCRIPT_OPERATORS
from ddprof.analyzers.facts.script.phases import HostPhases
from ddprof.analyzers.facts.script.tree import CallTree
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table, distinct


def script_operators(
    trace: RankTrace, track: int, spans: Table, tree: CallTree, phases: HostPhases, marks: Intervals
) -> Table:
    """SCRIPT_OPERATORS of one thread. `spans`: its SCRIPT_SPANS, sorted; `marks`: its host's time of the steps.

    Between two samples the moment of change from one call of the loop to the next is unknown: operators within half a
    sampling interval of it get no stack.
    """
    events = trace.events
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["track"] == track) & (events["dur_ns"] >= 0))
    rows = rows[intervals.outermost(*times(events, rows))]
    start, dur = events["ts_ns"][rows], events["dur_ns"][rows]
    in_optimizer = intervals.contains(phases.optimizer, start)
    keep = intervals.contains(intervals.merge(phases.beside(marks), phases.optimizer), start)
    keep &= intervals.contains(intervals.union(*marks), start)
    stack = _stack_at(spans, tree, start, in_optimizer)[keep]
    kinds, which = distinct(stack, events["name"][rows[keep]], in_optimizer[keep])
    time_ns = np.bincount(which, weights=dur[keep], minlength=kinds.shape[1])
    return SCRIPT_OPERATORS.table(
        {
            "stack": kinds[0],
            "name": kinds[1],
            "in_optimizer": kinds[2].astype(bool),
            "count": np.bincount(which, minlength=kinds.shape[1]),
            "time_ns": time_ns.astype(np.int64),
        }
    )


def _stack_at(spans: Table, tree: CallTree, at_ns: Array, in_optimizer: Array) -> Array:
    """The stack (row) of a thread at each moment; NULL where uncertain."""
    if not len(spans):
        return np.full(len(at_ns), NULL)
    row = intervals.row_at(spans.bounds, at_ns)
    is_certain = (row >= 0) & intervals.contains(certain(spans, call_of(tree)[spans["stack"]]), at_ns)
    is_certain &= in_optimizer | ~tree.in_phase[spans["stack"][row]]  # a sample of a phase that is over
    return np.where(is_certain, spans["stack"][row], NULL)


def call_of(tree: CallTree) -> Array:
    """One number per stack for the call of the training loop that it is in: its function outside the phases, or the
    line of the loop itself; -1 without a user frame. Shape (stacks,).
    """
    if not len(tree):
        return np.empty(0, np.int64)
    frame = tree.frame[np.maximum(tree.aside, 0)]
    number = np.where(tree.trains[frame], len(tree.frames) + frame, tree.function[frame])
    return np.where(tree.aside >= 0, number, -1)


def certain(spans: Table, called: Array) -> Intervals:
    """Intervals in which the thread certainly was in its span's call (`called`, shape (spans,))."""
    start, end = spans.bounds
    first = np.flatnonzero(np.append(True, (called[1:] != called[:-1]) | (start[1:] != end[:-1])))
    last = np.append(first[1:], len(spans)) - 1
    half = spans["resolution_ns"][first] // 2
    return intervals.union(start[first] + half, end[last] - half)

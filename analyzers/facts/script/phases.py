"""Phases of a host thread's steps, by PyTorch frames in its stacks or by annotated ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import SCRIPT_OPERATORS, Phase
from ddprof.analyzers.facts.names import times
from ddprof.analyzers.facts.script.tree import CallTree, call_tree, spans_of
from ddprof.intervals import EMPTY, Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table, distinct


class HostPhases(NamedTuple):
    """The phases of one thread; all empty where the recording cannot show Python between them."""

    forward: Intervals = EMPTY
    backward: Intervals = EMPTY
    optimizer: Intervals = EMPTY

    @property
    def every(self) -> Intervals:
        """All phases together."""
        return intervals.merge(self.forward, self.backward, self.optimizer)

    def beside(self, marks: Intervals) -> Intervals:
        """The remaining time of the steps: before forward, between backward and optimizer, and after."""
        if not len(self.every[0]):
            return EMPTY
        return intervals.subtract(intervals.union(*marks), intervals.merge(self.every, self.loss))

    @property
    def loss(self) -> Intervals:
        """Time from the last forward pass to the backward pass, in which the loss is computed."""
        (start, end), forward = self.backward, self.forward[1]
        if not len(start) or not len(forward):
            return EMPTY
        last = np.searchsorted(forward, start, side="right") - 1
        begun = forward[np.maximum(last, 0)]
        is_next = begun[1:] >= end[:-1]  # of several backward passes after one forward pass the first
        keep = (last >= 0) & np.append(True, is_next) & (intervals.overlap(self.optimizer, begun, start) == 0)
        return intervals.union(begun[keep], start[keep])

    @property
    def feeding(self) -> Intervals:
        """Time from the end of a step's phases to the next forward pass, in which batches are made."""
        updates, start = intervals.merge(self.backward, self.optimizer), self.forward[0]
        if not len(start) or not len(updates[0]):
            return EMPTY
        last = np.searchsorted(updates[1], start, side="right") - 1
        begun, first = np.unique(updates[1][last[last >= 0]], return_index=True)
        return intervals.union(begun, start[last >= 0][first])


def host_phases(spans: Table, tree: CallTree, annotated: Mapping[Phase, Intervals]) -> HostPhases:
    """The phases by frames (`spans`: SCRIPT_SPANS of one thread) and by `annotated` ranges.

    Recorded ranges outrank samples, which do not tell when a phase ended. Without backward passes, the time between
    forward and optimizer is taken for them; where these two are not seen either, no Python counts as between phases.
    """

    is_sampled = bool((spans["resolution_ns"] > 0).any()) or not len(spans)

    def seen(is_stack: Array, phase: Phase) -> Intervals:
        ranges = annotated.get(phase, EMPTY)
        return ranges if is_sampled and len(ranges[0]) else intervals.merge(spans_of(spans, is_stack), ranges)

    forward = seen(tree.is_forward, Phase.FORWARD)
    backward = seen(tree.is_backward, Phase.BACKWARD)
    optimizer = seen(tree.is_optimizer, Phase.OPTIMIZER)
    if not len(forward[0]) or not (len(backward[0]) or len(optimizer[0])):
        return HostPhases()
    if not len(backward[0]):
        following = np.searchsorted(optimizer[0], forward[1])
        has_optimizer = following < len(optimizer[0])
        backward = intervals.union(forward[1][has_optimizer], optimizer[0][following[has_optimizer]])
    return HostPhases(forward, backward, intervals.subtract(optimizer, _closures(forward, backward, optimizer)))


def with_closures_beside(trace: RankTrace) -> RankTrace:
    """The trace with the run's samples in closures of optimizers beside the phases: capture takes all that an optimizer
    calls, but for the passes, as its own.
    """
    totals = trace.script_totals
    in_optimizer = np.flatnonzero(totals["phase"] == "optimizer")
    if not len(in_optimizer):
        return trace
    in_closure = call_tree(trace).in_closure[totals["stack"][in_optimizer]]
    phase = totals["phase"].copy()
    phase[in_optimizer[in_closure]] = "rest"
    return replace(trace, script_totals=totals.replace(phase=phase))


def _closures(forward: Intervals, backward: Intervals, optimizer: Intervals) -> Intervals:
    """The parts of optimizer steps in which these call a closure with the passes: from the step's begin, then from each
    forward pass, to the end of the next backward pass.
    """
    start = forward[0][intervals.contains(optimizer, forward[0])]
    if not len(start) or not len(backward[0]):
        return EMPTY
    following = np.searchsorted(backward[0], start)
    is_followed = following < len(backward[0])
    start, following = start[is_followed], following[is_followed]
    step = np.searchsorted(optimizer[0], start, side="right") - 1
    is_first = np.append(True, step[1:] != step[:-1])[: len(start)]
    end = np.minimum(backward[1][following], optimizer[1][step])
    return intervals.union(np.where(is_first, optimizer[0][step], start), end)


# Operators that the training thread calls outside the phases of the step and in the optimizer, by stack.


def script_operators(
    trace: RankTrace, track: int, spans: Table, tree: CallTree, phases: HostPhases, marks: Intervals
) -> Table:
    """SCRIPT_OPERATORS of one thread. `spans`: its SCRIPT_SPANS, sorted; `marks`: its host's time of the steps.

    Between two samples the moment of change from one call of the loop to the next is unknown: operators there get no
    stack.
    """
    events = trace.events
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["track"] == track) & (events["dur_ns"] >= 0))
    rows = rows[intervals.outermost(*times(events, rows))]
    start, dur = events["ts_ns"][rows], events["dur_ns"][rows]
    in_optimizer = intervals.contains(phases.optimizer, start)
    keep = intervals.contains(intervals.merge(phases.beside(marks), phases.optimizer), start)
    keep &= intervals.contains(intervals.union(*marks), start)
    stack = _stack_at(spans, tree, start, in_optimizer)[keep]
    kinds, kind_of_row = distinct(stack, events["name"][rows[keep]], in_optimizer[keep])
    time_ns = np.bincount(kind_of_row, weights=dur[keep], minlength=kinds.shape[1])
    return SCRIPT_OPERATORS.table(
        {
            "stack": kinds[0],
            "name": kinds[1],
            "in_optimizer": kinds[2].astype(bool),
            "count": np.bincount(kind_of_row, minlength=kinds.shape[1]),
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
    # A sample stands for up to so much time before and after its moment.
    return intervals.union(start[first] + spans["resolution_ns"][first], end[last] - spans["resolution_ns"][last])

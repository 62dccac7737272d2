"""Waits of a rank for script Python between the phases: its device starves, or its training thread runs it.

The phases (forward, backward, optimizer) issue the step's own work; Python between them does something else. Python
inside them is the model's, and counts only where it delays the host far longer than launching does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.phases import HostPhases
from ddprof.analyzers.facts.script.tree import CallTree, call_tree, spans_of
from ddprof.analyzers.facts.work import between_operators, blocked, computes
from ddprof.analyzers.job.device_idle import DEAREST_LAUNCH_NS, MOST_LAUNCHES, starved
from ddprof.analyzers.job.script.beside import (
    BACKWARD,
    FORWARD,
    REST,
    is_sampled,
    own_optimizer,
    own_stacks,
    phases_of,
    run_samples,
    sampled_beside,
    time_beside,
)
from ddprof.analyzers.job.script.kinds import MOST
from ddprof.analyzers.job.script.lines import has_frames, time_by_stack, training_spans
from ddprof.causes import SPAN_CAUSES
from ddprof.derived_once import remembered
from ddprof.intervals import EMPTY, Intervals
from ddprof.tables import Array

FEW_SAMPLES = 20  # beside the phases: with fewer, a share of a half is uncertain by more than a tenth
MIN_TIMES = 2  # what came once may not come again
MOST_SHARE = 0.5  # of the steps: what stops a thread (its core is taken) comes anywhere, a line of the script again


@dataclass(frozen=True)
class ScriptTime:
    """Time of a rank in Python of its script, on its own clock.

    `idle`: the rank waits for it (on a CPU rank all of it). `every`: with the part hidden by a busy device. A `share`
    of both is in the user's code; `stack_ns`: part of `idle` in each stack of the user's, shape (stacks,).
    """

    idle: Intervals = EMPTY
    every: Intervals = EMPTY
    share: float = 1.0
    stack_ns: Array = field(default_factory=lambda: np.empty(0))


def script_times(ranks: Sequence[RankFacts]) -> list[ScriptTime]:
    """Script time of each rank. A rank with too few samples gets the share of the best-sampled rank, as all run one
    script.
    """
    times = [script_time(facts) for facts in ranks]
    seen = [sampled_beside(facts) for facts in ranks]
    most = int(np.argmax(seen)) if seen else 0
    return [
        replace(time, share=times[most].share) if is_sampled(facts) and count < min(FEW_SAMPLES, seen[most]) else time
        for time, facts, count in zip(times, ranks, seen, strict=True)
    ]


@remembered
def script_time(facts: RankFacts) -> ScriptTime:
    """The time of a rank; none for one without frames.

    Where no phase is recognisable in any stack, only long delays of the host count, as all Python may be the step's
    own.
    """
    tree = call_tree(facts)
    if not has_frames(facts):  # its stacks may be known all the same, from samples without a place in a phase
        return ScriptTime(stack_ns=np.zeros(len(tree)))
    phases, is_own = phases_of(facts, tree), own_stacks(facts, tree)
    spans = training_spans(facts)
    in_user_code = spans_of(spans, is_own)
    idle, held = _idle(facts)
    if not len(phases.every[0]):
        delays = intervals.intersect(held, in_user_code)
        return ScriptTime(delays, delays, 1.0, np.where(is_own, time_by_stack(facts, delays), 0.0))
    meetings = intervals.union(*facts.meetings.bounds)
    if computes(facts):  # a device rank's call returns at once, and its time is Python's
        meetings = intervals.merge(meetings, intervals.union(*facts.script_calls.bounds))
    occupied = intervals.merge(intervals.union(*facts.spans_of(*SPAN_CAUSES).bounds), meetings, blocked(facts))
    beside = intervals.subtract(phases.beside(facts.marks), occupied)
    between = intervals.subtract(idle, phases.every)
    if not is_sampled(facts):
        delays = intervals.intersect(intervals.merge(between, held), in_user_code)
        every = intervals.subtract(intervals.subtract(in_user_code, phases.every), occupied)
        if computes(facts):
            stepping_ns = own_optimizer(facts, tree, phases)
            stepping = spans_of(spans, stepping_ns > 0)
            delays = every = intervals.merge(delays, intervals.intersect(beside, in_user_code), stepping)
            is_own = is_own | (stepping_ns > 0)
        stack_ns = np.where(is_own, time_by_stack(facts, delays), 0.0)
        return ScriptTime(delays, intervals.merge(delays, every), 1.0, stack_ns)
    where = beside if computes(facts) else intervals.intersect(between, beside)
    time_ns = np.where(is_own, time_beside(facts, tree, where), 0.0)
    if computes(facts):  # a device runs what an optimizer calls: compute.unfused_optimizer
        stepping_ns = own_optimizer(facts, tree, phases)
        time_ns += stepping_ns
        where = intervals.merge(where, phases.optimizer) if stepping_ns.any() else where
    inside, inside_ns = _inside(facts, tree, is_own, phases)
    where, time_ns = intervals.merge(where, inside), time_ns + inside_ns
    length = intervals.length(intervals.intersect(where, intervals.union(*facts.marks)))
    share = min(1.0, float(time_ns.sum()) / length) if length else 0.0
    return ScriptTime(where, where if computes(facts) else intervals.merge(beside, inside), share, time_ns)


def _inside(facts: RankFacts, tree: CallTree, is_own: Array, phases: HostPhases) -> tuple[Intervals, Array]:
    """Python that holds the thread inside phases of most steps, and its time by stack: all of it is that of the user's
    stacks (`is_own`) that were seen there: in the windows or, where these were sampled too seldom, in the whole run."""
    spans, total_ns = EMPTY, np.zeros(len(tree))
    called_in = np.maximum(tree.folded, 0)  # a phase is most of the samples that it calls, and not the user's
    for part, name, is_there in (
        (phases.forward, FORWARD, tree.is_forward[called_in]),
        (phases.backward, BACKWARD, tree.is_backward[called_in]),
        (phases.loss, REST, ~(tree.in_phase | tree.is_loss)),
    ):
        calls = run_samples(facts, name) * (is_own & is_there)
        # What a pass calls beside torch, and the run was seen in, need not come in most steps.
        seen_in = calls * ((tree.folded != np.arange(len(tree))) & ~tree.in_torch)
        is_seen = name != REST and bool(seen_in.sum() >= MIN_TIMES)
        inside = intervals.intersect(held_again(facts, is_seen), part)
        seen = np.where(is_own, time_by_stack(facts, inside), 0.0)
        is_most = intervals.length(inside) >= MOST * intervals.length(part)
        if not seen.any() and (is_seen or is_most):
            seen = seen_in if is_seen else calls
        if seen.any():
            spans = intervals.merge(spans, inside)
            total_ns += seen * (intervals.length(inside) / seen.sum())
    return spans, total_ns


def _idle(facts: RankFacts) -> tuple[Intervals, Intervals]:
    """Idle time that only the host explains and no stall does, and the pieces of it that are far longer than a
    launch.
    """
    hungry, (start, end) = starved(facts), between_operators(facts)
    is_long = end - start > MOST_LAUNCHES * DEAREST_LAUNCH_NS
    held = intervals.merge(hungry.held, (start[is_long], end[is_long]))
    return intervals.merge(hungry.launching, held, (start, end)), held


def held_again(facts: RankFacts, is_seen: bool = False) -> Intervals:
    """Stretches between operators, of a device before a launch, that hold a step for longer than calling one takes, and
    lie between the same two operators in most steps, once or for each micro-batch; of a rank that `is_seen` in Python
    there before the same operator in more than one step."""
    start, end, before, after = _held(facts)
    step = intervals.row_at(facts.steps.bounds, start)
    keep = step >= 0
    start, end, step, before, after = (column[keep] for column in (start, end, step, before, after))
    # Of what is called now here, now there, the operator before it may be any.
    places, which = np.unique((before << 32) * (not is_seen) + after, return_inverse=True)
    shape = len(places), (steps := len(facts.steps))
    held_ns = np.bincount(which * steps + step, weights=end - start, minlength=shape[0] * steps).reshape(shape)
    often = (held_ns >= DEAREST_LAUNCH_NS).sum(axis=1)[which]  # steps
    is_again = often > MOST_SHARE * steps if not is_seen else often >= MIN_TIMES
    return start[is_again], end[is_again]


def _held(facts: RankFacts) -> tuple[Array, Array, Array, Array]:
    """Begin and end of stretches without an operator or launch that are long, and the names of what lies before and
    after each; shape (stretches,)."""
    if not computes(facts):
        start, end = starved(facts).held
        ops = facts.device_ops
        order = np.argsort(ops["launch_end_ns"], kind="stable")
        after = np.searchsorted(ops["launch_end_ns"][order], end)
        keep = (after > 0) & (after < len(ops))
        names = ops["name"].astype(np.int64)[order]
        return start[keep], end[keep], names[after[keep] - 1], names[after[keep]]
    ops = facts.host_operators
    start, end = between_operators(facts)
    if not len(start):
        return (np.empty(0, np.int64),) * 4
    long = end - start >= min(MOST_LAUNCHES * float(np.median(end - start)), DEAREST_LAUNCH_NS)
    start, end = start[long], end[long]
    ended = ops["start_ns"] + ops["dur_ns"]
    order = np.argsort(ended, kind="stable")
    before = np.searchsorted(ended[order], start, side="right") - 1
    after = np.searchsorted(ops["start_ns"], end)
    keep = (before >= 0) & (after < len(ops))
    names = ops["name"].astype(np.int64)
    return start[keep], end[keep], names[order[before[keep]]], names[after[keep]]

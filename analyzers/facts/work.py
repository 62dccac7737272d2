"""Compute time and free host time of a rank, for device ranks and CPU ranks alike."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import waiting_launches
from ddprof.analyzers.facts.early import is_early
from ddprof.analyzers.facts.gaps import MAX_LAUNCH_LATENCY_NS, busy
from ddprof.analyzers.facts.model import Phase, RankFacts, Work
from ddprof.analyzers.facts.names import is_evaluation
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

ALONE = 0.05  # of an operation's time beside communication: below it the operation ran alone
BESIDE = 0.8  # of an operation's time beside communication: above it the operation ran beside it
# A launch call takes about 3 us; one that takes longer found the queue full, or its thread stood still.
FULL_QUEUE_NS = 300_000


def host_work(facts: RankFacts) -> Intervals:
    """Intervals of operators on the training threads of a CPU rank; empty on a device rank."""
    return facts.host_work.bounds


def free_host(facts: RankFacts) -> Intervals:
    """Intervals in which the host is free to run: not blocked, loading, collecting, allocating or saving.

    On a CPU rank: time between operators that is booked to host_launch.
    """
    if not facts.is_device_rank:
        return facts.gaps_of("host_launch").bounds
    ops = facts.device_ops
    slow = blocked_launches(ops)
    taken = intervals.merge(facts.host_spans.bounds, (ops["launch_ns"][slow], ops["launch_end_ns"][slow]))
    return intervals.complement(taken, int(facts.steps["mark_ns"][0]), int(facts.steps["mark_end_ns"][-1]))


def between_calls(facts: RankFacts) -> Intervals:
    """Intervals between two operators of a CPU rank, or two launches of a device rank, whose operators are not kept."""
    if not facts.is_device_rank:
        return free_host(facts)
    ops = facts.device_ops.take(facts.device_ops["launch_ns"] != NULL)
    launches = intervals.union(ops["launch_ns"], ops["launch_end_ns"])
    return intervals.complement(launches, int(facts.steps["mark_ns"][0]), int(facts.steps["mark_end_ns"][-1]))


def running(facts: RankFacts) -> Intervals:
    """Intervals of the training thread on a core: operators, Python between them, garbage collection."""
    return intervals.merge(host_work(facts), free_host(facts), facts.spans_of("gc").bounds)


@remembered
def compute_work(facts: RankFacts) -> Intervals:
    """Intervals of compute: kernels of the device, or the operators of a CPU rank."""
    return busy(facts.device_ops, Work.COMPUTE) if facts.is_device_rank else host_work(facts)


def each_computing(facts: RankFacts) -> Intervals:
    """Operations of a device that compute, or of a CPU rank, each on its own where others overlap it."""
    ops = facts.device_ops
    return ops.bounds_of(ops["work"] == Work.COMPUTE) if facts.is_device_rank else host_work(facts)


def stage_work(facts: RankFacts) -> Intervals:
    """Compute of the forward and backward passes; on a CPU rank that of the optimizer too."""
    if not facts.is_device_rank:
        return host_work(facts)
    ops = facts.device_ops
    in_passes = (ops["work"] == Work.COMPUTE) & ~launched_in(facts, Phase.OPTIMIZER)
    return intervals.union(*ops.bounds_of(in_passes))


def step_compute_ns(facts: RankFacts) -> Array:
    """Compute time of each step, ns, shape (steps,). A kernel counts in full in the step that launched it."""
    if not facts.is_device_rank:
        return intervals.overlap(host_work(facts), *facts.steps.bounds)
    ops, (rows, step) = facts.device_ops, computed_in_steps(facts)
    return np.bincount(step, weights=(ops["end_ns"] - ops["start_ns"])[rows], minlength=len(facts.steps))


@remembered
def step_of_launch(facts: RankFacts) -> Array:
    """Position of the step that launched each device operation; -1 outside all steps. Needs at least one step.

    Work launched before the recording belongs to no step, although it runs in the first ones.
    """
    step = intervals.row_at(facts.marks, issued_ns(facts.device_ops))
    return np.where(is_early(facts.device_ops), -1, step)


def computed_in_steps(facts: RankFacts, steps: int | None = None) -> tuple[Array, Array]:
    """Rows of the compute kernels that the first `steps` steps launched, or all steps, and the step of each."""
    step = step_of_launch(facts)
    inside = (facts.device_ops["work"] == Work.COMPUTE) & (step >= 0) & (step < (steps or len(facts.steps)))
    rows = np.flatnonzero(inside)
    return rows, step[rows]


@remembered
def company(facts: RankFacts) -> tuple[Array, Array]:
    """Device operations that ran alone, and those beside communication, which takes SMs and bandwidth.

    Bool, both of shape (device_ops,). One that did in part is in neither.
    """
    start, end = facts.device_ops.bounds
    beside = intervals.overlap(intervals.union(*facts.comms.bounds), start, end) / np.maximum(end - start, 1)
    return beside < ALONE, beside > BESIDE


def knows_launches(facts: RankFacts) -> bool:
    """True where the trace shows when work was issued: on CPU ranks always, on device ranks with host calls."""
    return not facts.is_device_rank or bool((facts.device_ops["launch_ns"] != NULL).any())


def lost_device(facts: RankFacts, among: Sequence[RankFacts] = ()) -> bool:
    """True where the rank has a device like its peers (`among`), but its trace holds no kernels, or none with a length.
    Copies alone mean that kernels were not recorded, as nobody trains by copies, unless the calls are there and none
    launches a kernel.
    """
    has_device = facts.is_device_rank or any(f.is_device_rank for f in among)
    start, end = facts.device_ops.bounds
    return has_device and not ((end > start).any() and facts.counts.get("kernels", 1))


def is_torn_host(facts: RankFacts) -> bool:
    """True where one step remains of a CPU rank's damaged recording, or one whose other steps are torn. Such a host's
    work would be taken to recur without evidence.
    """
    is_torn = not facts.counts.get("whole", 1) or bool(facts.torn_steps)
    return not facts.is_device_rank and len(facts.steps) == 1 and is_torn


def may_compute(facts: RankFacts) -> bool:
    """True where a rank computes in its single step; assumed with several steps or incomplete work records."""
    if not facts.is_device_rank or facts.top.get("records") == "communication" or len(facts.steps) != 1:
        return True
    return bool(intervals.overlap(compute_work(facts), *facts.steps.bounds).any())


def hides_waits(facts: RankFacts) -> bool:
    """True where waits for other ranks look like host time: on a CPU rank without recorded communication."""
    return not facts.is_device_rank and not len(facts.comms)


def issued_ns(table: Table) -> Array:
    """Launch time of each operation or communication; its start where no launch is known."""
    return np.asarray(np.where(table["launch_ns"] == NULL, table["start_ns"], table["launch_ns"]))


def behind_update(facts: RankFacts, at_ns: Array) -> Array:
    """Mask of host times behind the last update of a step, whose next pass is in the next one: a loop whose steps begin
    with their forward pass receives there what that pass computes on.
    """
    never, marks = np.iinfo(np.int64).max, np.append(facts.marks[0], facts.marks[1][-1:])
    spans = [facts.phase_time(phase) for phase in (Phase.OPTIMIZER, Phase.FORWARD, Phase.BACKWARD)]
    updated, marked = (
        np.append(each, NULL)[np.searchsorted(each, at_ns, "right") - 1] for each in (spans[0][1], marks)
    )
    starts = [np.append(start, never)[np.searchsorted(start, at_ns)] for start, _ in spans]
    following = np.append(marks, never)[np.searchsorted(marks, at_ns, "right")]
    return np.asarray(
        (updated > marked) & (marked != NULL) & (following < never) & (following <= np.min(starts, axis=0))
    )


def called_ns(facts: RankFacts) -> Array:
    """Time at which the host reached each communication; NULL where a device's launch is unknown."""
    return facts.comms["launch_ns" if facts.is_device_rank else "start_ns"]


def blocked_launches(ops: Table) -> Array:
    """Mask of operations whose launch call waited for room in the queue; shape (device_ops,).

    Such an operation has a full queue before it; one that starts at once met an idle device. The call of a copy may
    wait for the copy itself.
    """
    return np.asarray(_long_launches(ops) & ~stalled_launches(ops))


def stalled_launches(ops: Table) -> Array:
    """Mask of kernels whose launch call took far longer than usual with an empty queue, since the thread stood still in
    it; shape (device_ops,).
    """
    at_once = ops["start_ns"] - ops["launch_end_ns"] <= MAX_LAUNCH_LATENCY_NS
    return np.asarray(_long_launches(ops) & at_once & (ops["work"] != Work.COPY))


def _long_launches(ops: Table) -> Array:
    is_long = (ops["launch_ns"] != NULL) & (ops["launch_end_ns"] - ops["launch_ns"] > FULL_QUEUE_NS)
    return np.asarray(is_long & ~waiting_launches(ops))  # those wait for no other kernel


def launched_in(facts: RankFacts, phase: Phase) -> Array:
    """Mask of operations launched inside ranges of a phase, shape (device_ops,)."""
    launch, (start, end) = facts.device_ops["launch_ns"], facts.phase_time(phase)
    return np.asarray(
        (launch != NULL) & (np.append(end, NULL)[np.searchsorted(start, launch, side="right") - 1] >= launch)
    )


# Time in which the training thread runs Python or nothing, waits, or evaluates, with a device or on a CPU rank.


def computes(facts: RankFacts) -> bool:
    """True where the training thread itself computes (a CPU rank), so that all of its time is step time."""
    return not facts.is_device_rank


def between_operators(facts: RankFacts) -> Intervals:
    """Idle time of a CPU rank between its operators; empty for a rank with a device."""
    return intervals.EMPTY if facts.is_device_rank else facts.gaps_of("host_launch").bounds


def blocked(facts: RankFacts) -> Intervals:
    """Intervals in which the training thread waits for the device or, on a CPU rank, for its peers."""
    calls = intervals.union(*facts.spans_of("host_sync").bounds)
    return calls if facts.is_device_rank else intervals.merge(calls, intervals.union(*facts.exposed.bounds))


def evaluating(facts: RankFacts) -> Intervals:
    """Intervals in which a model is in evaluation mode, as captured."""
    spans = facts.spans_of("checkpoint")
    return intervals.union(*spans.bounds_of(is_evaluation(facts.strings)[spans["name"]]))


# Forward and backward passes and optimizer steps of a rank's host, and what lies between them.


def passes_of(facts: RankFacts, phase: Phase) -> Intervals:
    """The outermost passes of a phase on the host, in order; backward passes also from autograd's engine."""
    marked = facts.phases.take(facts.phases["phase"] == phase)
    if phase == Phase.BACKWARD and not len(marked):
        return facts.engine_passes.bounds
    return intervals.union(*marked.bounds)


class Moment(IntEnum):
    """Place of a moment between the passes of a rank; after a micro-batch: between a backward and a forward pass."""

    INSIDE = 0
    ELSEWHERE = 1
    AFTER_OPTIMIZER = 2
    AFTER_MICRO_BATCH = 3
    BEFORE_OPTIMIZER = 4
    BEFORE_BACKWARD = 5


def moments_of(facts: RankFacts, at_ns: Array) -> Array:
    """The Moment of each time of the rank's host."""
    spans = {phase: passes_of(facts, phase) for phase in Phase}
    start, end = map(np.concatenate, zip(*spans.values(), strict=True))
    phase = np.repeat(list(spans), [len(span[0]) for span in spans.values()])
    by_end, by_start = np.argsort(end, kind="stable"), np.argsort(start, kind="stable")
    last = np.append(phase[by_end], -1)[np.searchsorted(end[by_end], at_ns, side="right") - 1]
    following = np.append(phase[by_start], -1)[np.searchsorted(start[by_start], at_ns)]
    place = np.full(len(at_ns), Moment.ELSEWHERE)
    place[(last == Phase.OPTIMIZER) & np.isin(following, (Phase.FORWARD, -1))] = Moment.AFTER_OPTIMIZER
    place[(last == Phase.BACKWARD) & (following == Phase.FORWARD)] = Moment.AFTER_MICRO_BATCH
    place[(last == Phase.BACKWARD) & (following == Phase.OPTIMIZER)] = Moment.BEFORE_OPTIMIZER
    place[(last == Phase.FORWARD) & (following == Phase.BACKWARD)] = Moment.BEFORE_BACKWARD
    # An optimizer's closure holds the passes (Lightning, LBFGS): what comes after them there is before the update.
    passes = intervals.merge(spans[Phase.FORWARD], spans[Phase.BACKWARD])
    updating = intervals.contains(spans[Phase.OPTIMIZER], at_ns)
    in_closure = updating & (last == Phase.BACKWARD) & ~intervals.contains(passes, at_ns)
    place[intervals.contains(intervals.union(start, end), at_ns)] = Moment.INSIDE
    place[in_closure] = Moment.BEFORE_OPTIMIZER
    place[intervals.contains(evaluating(facts), at_ns)] = Moment.ELSEWHERE  # what an evaluation gathers is its result
    return place

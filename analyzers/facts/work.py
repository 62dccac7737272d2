"""When a rank computes and when its host is free, for device ranks and CPU ranks alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import is_early
from ddprof.analyzers.facts.gaps import MAX_LAUNCH_LATENCY_NS, busy
from ddprof.analyzers.facts.model import Phase, RankFacts, Work
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

ALONE = 0.05  # of an operation's time beside communication: below it the operation ran alone
BESIDE = 0.8  # of an operation's time beside communication: above it the operation ran beside it
FULL_QUEUE_NS = (
    300_000  # a launch call takes about 3 us; one that takes longer found the queue full, or its thread stood still
)


def host_work(facts: RankFacts) -> Intervals:
    """When an operator runs on the training threads of a CPU rank; nothing on a device rank."""
    return facts.host_work.bounds


def free_host(facts: RankFacts) -> Intervals:
    """When the host is free to run: not blocked, loading, collecting, allocating or saving.

    On a CPU rank: time between operators that is booked to host_launch.
    """
    if not facts.is_device_rank:
        return facts.gaps_of("host_launch").bounds
    if not len(facts.steps):
        return intervals.EMPTY
    ops = facts.device_ops
    slow = blocked_launches(ops)
    taken = intervals.merge(facts.host_spans.bounds, (ops["launch_ns"][slow], ops["launch_end_ns"][slow]))
    return intervals.complement(taken, int(facts.steps["mark_ns"][0]), int(facts.steps["mark_end_ns"][-1]))


def running(facts: RankFacts) -> Intervals:
    """When the training thread is on a core: operators, Python between them, garbage collection."""
    return intervals.merge(host_work(facts), free_host(facts), facts.spans_of("gc").bounds)


@remembered
def compute_work(facts: RankFacts) -> Intervals:
    """When the rank computes: kernels of its device, or the operators of a CPU rank."""
    return busy(facts.device_ops, Work.COMPUTE) if facts.is_device_rank else host_work(facts)


def stage_work(facts: RankFacts) -> Intervals:
    """Compute of the forward and backward passes; on a CPU rank that of the optimizer too."""
    if not facts.is_device_rank:
        return host_work(facts)
    ops = facts.device_ops
    mine = (ops["work"] == Work.COMPUTE) & ~launched_in(facts, Phase.OPTIMIZER)
    return intervals.union(*ops.take(mine).bounds)


def step_compute_ns(facts: RankFacts) -> Array:
    """Compute time of each step, ns, shape (steps,). A kernel counts in full in the step that launched it."""
    if not facts.is_device_rank:
        return intervals.overlap(host_work(facts), *facts.steps.bounds)
    ops, count = facts.device_ops, len(facts.steps)
    step = step_of_launch(facts)
    mine = (ops["work"] == Work.COMPUTE) & (step >= 0)
    return np.bincount(step[mine], weights=(ops["end_ns"] - ops["start_ns"])[mine], minlength=count)


@remembered
def step_of_launch(facts: RankFacts) -> Array:
    """Position of the step that launched each device operation; -1 outside of all. The rank has one at least.

    What was launched before the recording is of no step, though it runs while the host is in the first ones.
    """
    issued = issued_ns(facts.device_ops)
    step = np.searchsorted(facts.steps["mark_ns"], issued, side="right") - 1
    inside = (step >= 0) & (issued < facts.steps["mark_end_ns"][np.maximum(step, 0)]) & ~is_early(facts.device_ops)
    return np.where(inside, step, -1)


@remembered
def company(facts: RankFacts) -> tuple[Array, Array]:
    """Flags of the device operations that ran alone, and of those that ran beside communication, which takes SMs and
    bandwidth; bool, both of shape (device_ops,). One that did in part is in neither.
    """
    start, end = facts.device_ops.bounds
    beside = intervals.overlap(intervals.union(*facts.comms.bounds), start, end) / np.maximum(end - start, 1)
    return beside < ALONE, beside > BESIDE


def knows_launches(facts: RankFacts) -> bool:
    """True where the trace says when work was issued: on a CPU rank always, on a device rank if it holds host calls."""
    return not facts.is_device_rank or bool((facts.device_ops["launch_ns"] != NULL).any())


def lost_device(facts: RankFacts, among: Sequence[RankFacts] = ()) -> bool:
    """True where the rank has a device, as the ranks that it is `among` have, but its trace holds no kernel of it.
    Copies alone are what is left where kernels were not recorded: nobody trains by them.
    """
    has_device = facts.is_device_rank or any(f.is_device_rank for f in among)
    return has_device and not (len(facts.device_ops) and facts.counts.get("kernels", 1))


def is_torn_host(facts: RankFacts) -> bool:
    """True where one step is left of a CPU rank's damaged recording, or of one of which other steps are torn. A
    device's idle time then has no reason; the host's own work would still be taken to recur.
    """
    is_torn = not facts.counts.get("whole", 1) or bool(facts.torn_steps)
    return not facts.is_device_rank and len(facts.steps) == 1 and is_torn


def may_compute(facts: RankFacts) -> bool:
    """True where a rank computes in its one step; taken for so where it has more, or not all work was recorded."""
    if not facts.is_device_rank or facts.top.get("records") == "communication" or len(facts.steps) != 1:
        return True
    return bool(intervals.overlap(compute_work(facts), *facts.steps.bounds).any())


def hides_waits(facts: RankFacts) -> bool:
    """Time that waits for other ranks look like host time: on a CPU rank whose communication was not recorded."""
    return not facts.is_device_rank and not len(facts.comms)


def issued_ns(table: Table) -> Array:
    """When each operation or communication was launched; where no launch is known, when it started."""
    return np.asarray(np.where(table["launch_ns"] == NULL, table["start_ns"], table["launch_ns"]))


def called_ns(facts: RankFacts) -> Array:
    """When the host reached each communication of the rank; NULL where a device's launch is not known."""
    return facts.comms["launch_ns" if facts.is_device_rank else "start_ns"]


def blocked_launches(ops: Table) -> Array:
    """Flags of operations that were launched by a call that waited for room in the queue; bool, shape (device_ops,).

    Such an operation has all that fills the queue before it: one that starts at once met an idle device. The call of a
    copy may wait for the copy itself.
    """
    return np.asarray(_long_launches(ops) & ~stalled_launches(ops))


def stalled_launches(ops: Table) -> Array:
    """Flags of kernels that were launched by a call that took far longer than a launch, and found nothing in the queue;
    bool, shape (device_ops,): the thread stood still in it.
    """
    at_once = ops["start_ns"] - ops["launch_end_ns"] <= MAX_LAUNCH_LATENCY_NS
    return np.asarray(_long_launches(ops) & at_once & (ops["work"] != Work.COPY))


def _long_launches(ops: Table) -> Array:
    return np.asarray((ops["launch_ns"] != NULL) & (ops["launch_end_ns"] - ops["launch_ns"] > FULL_QUEUE_NS))


def launched_in(facts: RankFacts, phase: Phase) -> Array:
    """Flags of operations that were launched inside ranges of a phase, bool of shape (device_ops,)."""
    launch = facts.device_ops["launch_ns"]
    start, end = facts.phase_time(phase)
    if not len(start):
        return np.zeros(len(launch), bool)
    at = np.searchsorted(start, launch, side="right") - 1
    return np.asarray((launch != NULL) & (at >= 0) & (end[np.maximum(at, 0)] >= launch))

"""One step of a pipeline over time: forward and backward passes of each stage, other work, waiting for other stages.

The drawing shows the ledger's times: its compute is filled, and waiting is the time it books to the bubble or
comm_wait.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import compute_work
from ddprof.analyzers.job.ledger import stage_waiting
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.pipelines.passes import Passes, passes_of
from ddprof.intervals import Intervals


class StagePass(Struct, frozen=True):
    """A forward or backward pass: when it computes, ns on the reference clock; `number` 1, 2, ... in the order in which
    the stage runs its forward, or its backward, passes of the step.
    """

    number: int
    is_forward: bool
    busy: Intervals


class StageStep(Struct, frozen=True):
    """One stage in one step, ns on the reference clock.

    `other`: compute outside passes. `waiting`: exposed waits for other stages. `start_ns`, `end_ns`: the rank's step.
    """

    position: int
    start_ns: int
    end_ns: int
    passes: tuple[StagePass, ...]
    other: Intervals
    waiting: Intervals
    knows_backward: bool


def stage_steps(job: JobFacts, chain: tuple[int, ...], step: int) -> list[StageStep]:
    """One step of the ranks of a chain, first stage first. `step`: position, one that every rank has."""
    return [_stage_step(job, position, step) for position in chain]


def _stage_step(job: JobFacts, position: int, step: int) -> StageStep:
    facts, offset = job.ranks[position], job.clock.offset_ns(position)
    lo, hi = (int(bound[step]) for bound in facts.steps.bounds)
    work = intervals.clip(compute_work(facts), lo, hi)
    passes = passes_of(facts)
    numbered = _numbered(facts, passes, step, lo, hi)
    inside = intervals.merge(*(one.busy for one in numbered)) if numbered else intervals.EMPTY
    waiting = intervals.clip(stage_waiting(facts, job.members, position), lo, hi)
    return StageStep(
        position,
        lo - offset,
        hi - offset,
        tuple(StagePass(one.number, one.is_forward, _shifted(one.busy, offset)) for one in numbered),
        _shifted(intervals.subtract(work, inside), offset),
        _shifted(waiting, offset),
        passes.knows_backward,
    )


def _numbered(facts: RankFacts, launched: Passes, step: int, lo: int, hi: int) -> list[StagePass]:
    """The passes launched in the step, numbered by direction; own clock."""
    start, end = facts.device_ops.bounds
    counts = {True: 0, False: 0}
    passes = []
    for place in np.flatnonzero(launched.step == step).tolist():
        is_forward = bool(launched.is_forward[place])
        counts[is_forward] += 1
        of_pass = np.flatnonzero(launched.of_op == place)
        busy = intervals.clip(intervals.union(start[of_pass], end[of_pass]), lo, hi)
        if len(busy[0]):
            passes.append(StagePass(counts[is_forward], is_forward, busy))
    return passes


def _shifted(spans: Intervals, offset_ns: int) -> Intervals:
    return spans[0] - offset_ns, spans[1] - offset_ns

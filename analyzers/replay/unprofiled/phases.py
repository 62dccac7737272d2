"""How long each phase of a step takes without the profiler, by the step timers, over what it takes with it.

The profiler costs time per operator: a phase of many short ones gains more without it than one of few long ones. So one
rank that repeats a convolution is not slowed by the profiler as its peers are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.work import free_host
from ddprof.analyzers.job.whole_run.unprofiled_steps import timed_phases
from ddprof.analyzers.replay.host_time import Scaled, running
from ddprof.analyzers.replay.model import RankGraph
from ddprof.intervals import Intervals

SLOWEST, FASTEST = 2.0, 0.1
MOST_WAITING, MOST_IDLE = 0.1, 0.2  # of a phase: one that holds more of it tells little of its work
# A phase slower than with the profiler, and than every other phase, by so much holds waits outside the windows.
SLOWER, BY_FAR = 1.2, 1.4
ENOUGH_WORK = 0.1  # of the rank's: paces of shorter phases are too rough to compare with
HANDED_SHARE = 0.5  # of a transfer on the host's threads: handing over to one another, which the profiler slows
LONG_GAP_NS = 1_000_000  # the profiler adds microseconds to an operator, so a longer gap between two is not its doing


@dataclass(frozen=True)
class PhaseWork:
    """Work of a rank by phase, that outside of all phases (None) too, and the pace of those phases that tell it.

    `whole`: the same with the gaps in which the host must do something else.
    """

    spans: Mapping[Phase | None, Intervals]
    paces: Mapping[Phase, float]
    whole: Mapping[Phase | None, Intervals]

    def scaled(self, pace: float, like: Mapping[Phase, float]) -> Scaled:
        """All work, each phase at its own pace times `pace`; phases without one at the mean.

        `like`: paces of peers, whose work this rank does: what it did in its gaps goes.
        """
        paces, mean = {**self.paces, **like}, self.mean(like)
        own = {phase: mean if phase is None else paces.get(phase, mean) for phase in self.spans}
        return tuple((spans, pace * own[phase]) for phase, spans in (self.whole if like else self.spans).items())

    def is_long(self, phase: Phase) -> bool:
        """Whether the phase is a clear part of the rank's work."""
        return intervals.length(self.spans[phase]) > ENOUGH_WORK * sum(map(intervals.length, self.spans.values()))

    def mean(self, like: Mapping[Phase, float]) -> float:
        """Over the work whose pace is known; 1.0 where none is."""
        paces = {**self.paces, **like}
        weights = [intervals.length(self.spans[phase]) for phase in paces]
        return float(np.average(list(paces.values()), weights=weights)) if sum(weights) else 1.0


def without_waits(ranks: Mapping[int, PhaseWork]) -> dict[int, PhaseWork]:
    """The same without paces of phases that must hold waits outside the windows: the profiler only slows, and a slower
    machine slows every phase.
    """
    known = [(pos, phase, pace) for pos, work in ranks.items() for phase, pace in work.paces.items()]
    slowest = sorted(((pace, pos, phase) for pos, phase, pace in known if ranks[pos].is_long(phase)), reverse=True)[:2]
    holds = {
        (pos, phase)
        for pos, phase, pace in known
        if pace > max([SLOWER, *(BY_FAR * other for other, *where in slowest if where != [pos, phase])])
    }
    return {
        pos: replace(work, paces={phase: pace for phase, pace in work.paces.items() if (pos, phase) not in holds})
        for pos, work in ranks.items()
    }


def phase_work(rank: RankGraph, pauses: Scaled) -> PhaseWork:
    """Operators and the Python between them, without pauses; without gaps in which the host must do something else
    where the phase's pace is not known.
    """
    facts = rank.facts
    work = running(facts)
    for paused, _ in pauses:
        work = intervals.subtract(work, paused)
    steady = intervals.subtract(work, _long_gaps(facts))
    exposed = intervals.union(*facts.exposed.bounds)
    moved = _moving(rank, exposed)
    timed = timed_phases(facts)
    spans: dict[Phase | None, Intervals] = {None: steady}
    everything: dict[Phase | None, Intervals] = {None: work}
    paces: dict[Phase, float] = {}
    for phase in Phase:
        whole = facts.phase_time(phase)
        for parts, of in ((spans, steady), (everything, work)):
            parts[phase] = intervals.intersect(of, whole)
            parts[None] = intervals.subtract(parts[None], whole)
        if phase not in timed or not intervals.length(spans[phase]):
            continue
        total = intervals.length(whole)
        own, kept, transfer = (intervals.length(intervals.intersect(p, whole)) / total for p in (work, steady, moved))
        waiting, idle = max(0.0, 1 - own - transfer), own - kept
        if waiting > MOST_WAITING or idle > MOST_IDLE:
            continue
        inside_ns, outside_ns = timed[phase]
        share = outside_ns / inside_ns - waiting - (1 - HANDED_SHARE) * transfer
        paces[phase] = min(max(share / (own + HANDED_SHARE * transfer), FASTEST), SLOWEST)
        spans[phase] = everything[phase]
    return PhaseWork(spans, paces, everything)


def _long_gaps(facts: RankFacts) -> Intervals:
    start, end = free_host(facts)
    long = end - start > LONG_GAP_NS
    return intervals.union(start[long], end[long])


def _moving(rank: RankGraph, exposed: Intervals) -> Intervals:
    """When a CPU rank waits for data to move, and for nobody."""
    ops = rank.ops
    if rank.facts.is_device_rank:
        return intervals.EMPTY
    end = ops.start_ns + ops.dur_ns
    return intervals.intersect(exposed, intervals.union(end - ops.transfer_ns, end))


def peers_paces(peers: Mapping[int, PhaseWork], positions: frozenset[int]) -> dict[Phase, float]:
    """The lower median pace of each phase over ranks that are not at `positions`."""
    others = [work.paces for position, work in peers.items() if position not in positions]
    found = {phase: sorted(paces[phase] for paces in others if phase in paces) for phase in Phase}
    return {phase: paces[(len(paces) - 1) // 2] for phase, paces in found.items() if paces}

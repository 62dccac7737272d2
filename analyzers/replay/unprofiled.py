"""The recorded run as it would be without the profiler: the baseline for gains of an unprofiled step.

The profiler costs host time per operator and nothing else. Kernels and transfers of a device therefore take as long
without it; the following host time does not:

- Pauses (loading, garbage collection, saving) take what the step timers measured outside the trace window.
- Work (operators and the Python between them) takes, by phase, the ratio that the phase timers give.
- Collectives that run on the host's threads (CPU ranks) are scaled in part.
- Time in which the host idles between two operators stays.
- Pauses that the trace window lacks (saving every eighth step) are added as they are: no change but one of theirs moves
  them. So is what makes unprofiled steps of a device longer than profiled ones, as the profiler shortens nothing.

On top of these comes one ratio for all work, found by search: the one with which the replay returns the unprofiled step
that the timers measured. What the machine itself does faster or slower outside the window is in it.

Ratio of a phase: slowdown by the profiler = time of a phase inside the trace window / outside, from the step timers,
corrected for waiting. The code holds its inverse, the ratio outside / inside, because the replay multiplies recorded
time by it. Of the time of a phase inside the window only its work, and part of its transfers, is slowed by the
profiler, so with all terms as shares of the phase inside

    outside / inside = waiting + ratio * (work + handed_share * transfer) + (1 - handed_share) * transfer

which is solved for `ratio`. A phase that waits much or idles in long gaps tells little of its work and has no ratio;
its work takes the mean ratio of the rank. Each phase has its own ratio because the profiler costs time per operator: a
phase of many short operators is slowed more than one of few long ones, so a rank that repeats one convolution is slowed
less than its peers are. Thresholds without another origin were set on the workload runs of docs/workloads.md
(2026-11-22).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.facts.work import between_calls, running
from ddprof.analyzers.job.whole_run.unprofiled_steps import pause_ratios, timed_phases, unprofiled_ratio
from ddprof.analyzers.replay.host_time import Scaled, on_top
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario
from ddprof.analyzers.replay.simulate import Baseline, simulate_with_interference
from ddprof.intervals import Intervals

MAX_TRIES = 6  # replays of the search: the step is a nearly straight line in the ratio
CLOSE_SHARE = 0.003  # of the profiled step: a replay this near to the measured unprofiled step ends the search
# Share of the step that the ratio must be able to move. Below it something else holds the step, which then tells
# nothing of the ratio (set on the workload runs with slow loader workers, 2026-11-22).
MIN_HELD_SHARE = 0.15
MIN_RATIO = 0.1  # without the profiler / with it
MAX_WAITING_SHARE = 0.1  # of a phase: one that waits longer has no ratio
MAX_IDLE_SHARE = 0.2  # of a phase in long gaps: one that idles longer has no ratio
MIN_WAITS_RATIO = 1.2  # a phase slower than this without the profiler may hold waits that the trace window lacks
MIN_WAITS_EXCESS = 1.4  # and does, where its ratio is this many times that of every other phase
MIN_PHASE_SHARE = 0.1  # of the rank's work: ratios of shorter phases are too rough to compare with
LONG_GAP_NS = 1_000_000  # the profiler adds microseconds to an operator: a longer gap between two is not its doing


@dataclass(frozen=True, eq=False)
class UnprofiledRun(Baseline):
    """The run without the profiler; `host` is by position of the rank."""

    ratio: float
    host: Mapping[int, PhaseWork]

    def under(self, graph: Graph, scenario: Scenario, as_peers: frozenset[int]) -> Scenario:
        """The scenario without the profiler. `as_peers`: positions of ranks that do in it what their peers do."""
        return _without_profiler(graph, self.host, scenario, self.ratio, as_peers)


def unprofiled_run(
    graph: Graph, profiled: Baseline, unprofiled_us: float | None, apart_us: float = 0.0
) -> UnprofiledRun | None:
    """The run whose replay gives the step `unprofiled_us` that was measured outside; None where none was.
    `apart_us`: of it, in pauses that the trace window lacks.

    Where the host does not decide how long a step takes (the device does, or loader workers that do not keep up), the
    ratio is that of the step timers.
    """
    if unprofiled_us is None or profiled.step_us <= 0 or profiled.outcome.span_ns <= 0:
        return None
    host = without_waits({rank.position: phase_work(rank) for rank in graph.ranks})
    at = partial(_at, graph, host, profiled, unprofiled_us)
    runs = {ratio: at(ratio) for ratio in (1.0, MIN_RATIO)}
    steps = {ratio: run.outcome.relative_to(profiled.outcome) for ratio, run in runs.items()}  # over the profiled step
    most = max(rank.execution.limits.max_unprofiled_ratio for rank in graph.ranks)
    if most == 1.0:
        apart_us = max(apart_us, unprofiled_us - steps[1.0] * profiled.step_us)
    apart_us = min(apart_us, max(0.0, unprofiled_us - steps[MIN_RATIO] * profiled.step_us))  # a device may hide some
    wanted = (unprofiled_us - apart_us) / profiled.step_us
    if steps[MIN_RATIO] > (1 - MIN_HELD_SHARE) * steps[1.0]:
        by_phase = any(work.ratios for work in host.values())
        timed = None if by_phase else unprofiled_ratio([rank.facts for rank in graph.ranks])
        return replace(runs[1.0] if timed is None else at(min(max(timed, MIN_RATIO), most)), apart_us=apart_us)
    for _ in range(MAX_TRIES):
        nearest = min(steps, key=lambda ratio: abs(steps[ratio] - wanted))
        ratio = _next_ratio(steps, wanted, most)
        if abs(steps[nearest] - wanted) <= CLOSE_SHARE or ratio is None:
            break
        runs[ratio] = at(ratio)
        steps[ratio] = runs[ratio].outcome.relative_to(profiled.outcome)
    return replace(runs[min(steps, key=lambda ratio: abs(steps[ratio] - wanted))], apart_us=apart_us)


def _next_ratio(steps: Mapping[float, float], wanted: float, most: float) -> float | None:
    """Ratio, at most `most`, at which the line through the two known steps around the wanted one meets it; None if out
    of reach."""
    below = max((ratio for ratio, step in steps.items() if step <= wanted), default=None)
    above = min((ratio for ratio, step in steps.items() if step > wanted), default=None)
    if above is None and most not in steps:
        return most
    if below is None or above is None:
        return None
    return below + (above - below) * (wanted - steps[below]) / (steps[above] - steps[below])


def _without_profiler(
    graph: Graph,
    host: Mapping[int, PhaseWork],
    scenario: Scenario,
    ratio: float,
    as_peers: frozenset[int] = frozenset(),
) -> Scenario:
    """The scenario without the profiler: work at `ratio` on top of the ratios of its phases."""
    scaled = {}
    transfer = dict(scenario.transfer_ns)
    typical = typical_ratios(host, as_peers) if as_peers else {}
    for rank in graph.ranks:
        work, like = host[rank.position], typical if rank.position in as_peers else {}
        if handed_share := rank.execution.limits.handed_share:
            recorded = transfer.get(rank.position, rank.ops.transfer_ns)
            share = 1 + handed_share * (ratio * work.mean(like) - 1)
            transfer[rank.position] = np.round(recorded * share).astype(np.int64)
        parts = (*work.pauses, *work.scaled(ratio, like))
        scaled[rank.position] = on_top(scenario.host_scale.get(rank.position, ()), parts)
    return replace(scenario, host_scale=scaled, transfer_ns=transfer)


def _at(graph: Graph, host: Mapping[int, PhaseWork], profiled: Baseline, step_us: float, ratio: float) -> UnprofiledRun:
    scenario = _without_profiler(graph, host, Scenario(), ratio)
    outcome = simulate_with_interference(graph, scenario, profiled.outcome)
    return UnprofiledRun(scenario, outcome, step_us, ratio, host)


@dataclass(frozen=True)
class PhaseWork:
    """Work of one rank by phase (None: outside all phases), and the ratios of those phases that have one.

    `spans` leave out long gaps in phases without a ratio, `with_gaps` never do. `pauses`, beside the work, each have
    their ratio outside / inside the trace window.
    """

    spans: Mapping[Phase | None, Intervals]
    ratios: Mapping[Phase, float]
    with_gaps: Mapping[Phase | None, Intervals]
    pauses: Scaled

    def scaled(self, ratio: float, like: Mapping[Phase, float]) -> Scaled:
        """All work, that of each phase at the phase's ratio times `ratio`; phases without a ratio at the mean.

        `like`: ratios of the peers whose work this rank does in place of its own. Peers have no gaps of its kind, so
        its gaps are scaled as work.
        """
        ratios, mean = {**self.ratios, **like}, self.mean(like)
        ratio_of = {phase: mean if phase is None else ratios.get(phase, mean) for phase in self.spans}
        return tuple(
            (spans, ratio * ratio_of[phase]) for phase, spans in (self.with_gaps if like else self.spans).items()
        )

    def is_long(self, phase: Phase) -> bool:
        """True where the phase is a clear part of the rank's work."""
        return intervals.length(self.spans[phase]) > MIN_PHASE_SHARE * sum(map(intervals.length, self.spans.values()))

    def mean(self, like: Mapping[Phase, float]) -> float:
        """Mean ratio, weighted by work; 1.0 where no phase has one."""
        ratios = {**self.ratios, **like}
        weights = [intervals.length(self.spans[phase]) for phase in ratios]
        return float(np.average(list(ratios.values()), weights=weights)) if sum(weights) else 1.0


def without_waits(ranks: Mapping[int, PhaseWork]) -> dict[int, PhaseWork]:
    """The phases without ratios of those that hold waits only outside the window.

    The profiler never makes work faster, and a machine that got slower slows every phase: a single phase far slower
    outside the window than in it must have waited.
    """
    timed = [(pos, phase, ratio) for pos, work in ranks.items() for phase, ratio in work.ratios.items()]
    of_long = sorted(((ratio, pos, phase) for pos, phase, ratio in timed if ranks[pos].is_long(phase)), reverse=True)
    largest = of_long[:2]
    waited = {
        (pos, phase)
        for pos, phase, ratio in timed
        if ratio
        > max([MIN_WAITS_RATIO, *(MIN_WAITS_EXCESS * other for other, *where in largest if where != [pos, phase])])
    }
    return {
        pos: replace(work, ratios={phase: ratio for phase, ratio in work.ratios.items() if (pos, phase) not in waited})
        for pos, work in ranks.items()
    }


def phase_work(rank: RankGraph) -> PhaseWork:
    """Operators and the Python between them, pauses left out, by phase, and the ratios of the module's formula."""
    facts = rank.facts
    paused = [(intervals.union(*facts.spans_of(cause).bounds), ratio) for cause, ratio in pause_ratios(facts).items()]
    work = running(facts)
    for spans_of_cause, _ in paused:
        work = intervals.subtract(work, spans_of_cause)
    start, end = between_calls(facts)
    is_long = end - start > LONG_GAP_NS
    without_gaps = intervals.subtract(work, intervals.union(start[is_long], end[is_long]))
    limits, transfers = rank.execution.limits, _exposed_transfers(rank)
    handed_share = limits.handed_share
    timed, in_steps = timed_phases(facts), intervals.union(*facts.marks)  # work outside the kept steps is not known
    spans: dict[Phase | None, Intervals] = {None: without_gaps}
    with_gaps: dict[Phase | None, Intervals] = {None: work}
    ratios: dict[Phase, float] = {}
    for phase in Phase:
        whole = intervals.intersect(facts.phase_time(phase), in_steps)
        for parts, of in ((spans, without_gaps), (with_gaps, work)):
            parts[phase] = intervals.intersect(of, whole)
            parts[None] = intervals.subtract(parts[None], whole)
        if phase not in timed or not intervals.length(spans[phase]):
            continue
        total = intervals.length(whole)
        working, steady, transfer = (
            intervals.length(intervals.intersect(part, whole)) / total for part in (work, without_gaps, transfers)
        )
        waiting, idle = max(0.0, 1 - working - transfer), working - steady
        if waiting > MAX_WAITING_SHARE or idle > MAX_IDLE_SHARE:
            continue
        inside_ns, outside_ns = timed[phase]
        share = outside_ns / inside_ns - waiting - (1 - handed_share) * transfer
        ratio = max(share / (working + handed_share * transfer), MIN_RATIO)
        ratios[phase] = min(ratio, limits.max_unprofiled_ratio)
        spans[phase] = with_gaps[phase]
    return PhaseWork(spans, ratios, with_gaps, tuple(paused))


def _exposed_transfers(rank: RankGraph) -> Intervals:
    """Intervals of the host waiting for data that its own threads move, with all members arrived."""
    ops, exposed = rank.ops, rank.facts.exposed
    if not rank.execution.limits.handed_share:
        return intervals.EMPTY
    transfers = intervals.union(ops.end_ns - ops.transfer_ns, ops.end_ns)
    return intervals.intersect(intervals.union(*exposed.bounds), transfers)


def typical_ratios(ranks: Mapping[int, PhaseWork], left_out: frozenset[int]) -> dict[Phase, float]:
    """The lower median ratio of each phase over the ranks whose positions are not `left_out`."""
    others = [work.ratios for position, work in ranks.items() if position not in left_out]
    by_phase = {phase: [ratios[phase] for ratios in others if phase in ratios] for phase in Phase}
    return {phase: averages.typical(ratios) for phase, ratios in by_phase.items() if ratios}

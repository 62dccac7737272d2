"""The recorded job as it runs outside trace windows: the profiler costs host time per operator, and nothing else.

Kernels and transfers of a device take as long with it as without; operators, the Python between them, and collectives
that run on the host's threads do not. Pauses (loading, collecting garbage, saving) take what capture timed outside the
windows, and a host that idles between two operators idles on. One pace for the other host time of all ranks is found
such that the replay gives the step measured there; what the machine does slower or faster meanwhile is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import free_host
from ddprof.analyzers.job.untraced_steps import untraced_pace, untraced_pauses
from ddprof.analyzers.replay.graph import host_cause
from ddprof.analyzers.replay.host_pace import on_top, running
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.simulate import Outcome, simulate

from ddprof import intervals
from ddprof.intervals import Intervals

SLOWEST, FASTEST = 2.0, 0.1  # paces looked at: host time outside the windows over that inside
TRIES = 6  # the step is a nearly straight line in the pace
CLOSE = 0.003  # of the step
HANDED_SHARE = 0.5  # of a transfer on the host's threads: handing over to one another, which the profiler slows
DECIDES_SHARE = 0.15  # of the step must hang on the host's pace, or the step tells nothing of it
LONG_GAP_NS = 1_000_000  # the profiler adds microseconds to an operator, so a longer gap between two is not its doing


@dataclass(frozen=True)
class HostTime:
    """Host time of a rank: pauses as (cause, spans, what they take outside the windows over inside), and its work."""

    pauses: tuple[tuple[str, Intervals, float], ...]
    work: Intervals


@dataclass(frozen=True)
class Untraced:
    """The step outside the windows and what reproduces it.

    `drift`: the host's pace over the one at which the pauses were timed; 1.0 where it is the same time. `host`: by
    position of the rank.
    """

    step_us: float
    pace: float
    drift: float
    host: Mapping[int, HostTime]
    scenario: Scenario
    outcome: Outcome

    def under(self, graph: Graph, scenario: Scenario) -> Scenario:
        """The scenario without the profiler."""
        return _unprofiled(graph, self.host, scenario, self.pace, self.drift)


def without_profiler(
    graph: Graph, baseline: Outcome, traced_us: float, untraced_us: float | None, timed_pace: float | None = None
) -> Untraced | None:
    """The pace of the host at which a replay gives the step measured outside the windows; None where none was.

    `timed_pace`: that of the steps in which the pauses were timed, where those are others.

    Where the host's pace does not decide how long a step takes (the device does, or loader workers that do not keep
    up), it is that of the step timers.
    """
    if untraced_us is None or traced_us <= 0 or baseline.span_ns <= 0:
        return None
    wanted = untraced_us / traced_us
    at = partial(_at, graph, {rank.position: _host_time(rank.facts) for rank in graph.ranks}, untraced_us, timed_pace)
    runs = {pace: at(pace) for pace in (1.0, FASTEST)}
    steps = {pace: run.outcome.relative_to(baseline) for pace, run in runs.items()}  # over the recorded step
    if steps[FASTEST] > (1 - DECIDES_SHARE) * steps[1.0]:
        timed = untraced_pace([rank.facts for rank in graph.ranks])
        return runs[1.0] if timed is None else at(min(max(timed, FASTEST), SLOWEST))
    for _ in range(TRIES):
        nearest = min(steps, key=lambda pace: abs(steps[pace] - wanted))
        pace = _next_pace(steps, wanted)
        if abs(steps[nearest] - wanted) <= CLOSE or pace is None:
            break
        runs[pace] = at(pace)
        steps[pace] = runs[pace].outcome.relative_to(baseline)
    return runs[min(steps, key=lambda pace: abs(steps[pace] - wanted))]


def _next_pace(steps: Mapping[float, float], wanted: float) -> float | None:
    """Where to look between the known paces nearest to the wanted step; None where it is out of reach."""
    below = max((pace for pace, step in steps.items() if step <= wanted), default=None)
    above = min((pace for pace, step in steps.items() if step > wanted), default=None)
    if above is None and SLOWEST not in steps:
        return SLOWEST
    if below is None or above is None:
        return None
    return below + (above - below) * (wanted - steps[below]) / (steps[above] - steps[below])


def _unprofiled(graph: Graph, host: Mapping[int, HostTime], scenario: Scenario, pace: float, drift: float) -> Scenario:
    """The scenario without the profiler, the host at this pace.

    Collecting garbage is the host's own work, so its timed pauses drift with it.
    """
    scaled = {}
    transfer = dict(scenario.transfer_ns)
    for rank in graph.ranks:
        own = host[rank.position]
        pauses = [(spans, share * (drift if cause == "gc" else 1.0)) for cause, spans, share in own.pauses]
        if not rank.facts.is_device_rank:
            moved = transfer.get(rank.position, rank.ops.transfer_ns)
            transfer[rank.position] = np.round(moved * (1 + HANDED_SHARE * (pace - 1))).astype(np.int64)
        scaled[rank.position] = on_top(scenario.host_scale.get(rank.position, ()), (*pauses, (own.work, pace)))
    return replace(scenario, host_scale=scaled, transfer_ns=transfer)


def _host_time(facts: RankFacts) -> HostTime:
    pauses = tuple(
        (cause, intervals.union(*host_cause(facts, cause)), share) for cause, share in untraced_pauses(facts).items()
    )
    work = _busy(facts)
    for _, spans, _ in pauses:
        work = intervals.subtract(work, spans)
    return HostTime(pauses, work)


def _busy(facts: RankFacts) -> Intervals:
    """Operators and the Python between them, without the gaps in which the host must do something else."""
    start, end = free_host(facts)
    long = end - start > LONG_GAP_NS
    return intervals.subtract(running(facts), intervals.union(start[long], end[long]))


def _at(graph: Graph, host: Mapping[int, HostTime], step_us: float, timed_pace: float | None, pace: float) -> Untraced:
    drift = pace / timed_pace if timed_pace else 1.0
    scenario = _unprofiled(graph, host, Scenario(), pace, drift)
    return Untraced(step_us, pace, drift, host, scenario, simulate(graph, scenario))

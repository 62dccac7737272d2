"""The recorded job as it runs outside trace windows: the profiler costs host time per operator, and nothing else.

Kernels and transfers of a device take as long with it as without; operators, the Python between them, and collectives
that run on the host's threads do not. Pauses (loading, collecting garbage, saving) take what capture timed outside the
windows, and a host that idles between two operators idles on. The other host time takes what the timers of its phase
say, where the phase is not full of waiting, and then one pace for all of it is found such that the replay gives the
step measured there; what the machine does slower or faster meanwhile is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ddprof import intervals
from ddprof.analyzers.job.whole_run.unprofiled_steps import untraced_pace, untraced_pauses
from ddprof.analyzers.replay.host_time import Scaled, on_top
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario
from ddprof.analyzers.replay.simulate import Outcome, simulate
from ddprof.analyzers.replay.unprofiled.phases import (
    FASTEST,
    HANDED_SHARE,
    SLOWEST,
    PhaseWork,
    peers_paces,
    phase_work,
    without_waits,
)

TRIES = 6  # the step is a nearly straight line in the pace
CLOSE = 0.003  # of the step
DECIDES_SHARE = 0.15  # of the step must hang on the host's pace, or the step tells nothing of it


@dataclass(frozen=True)
class HostTime:
    """Host time of a rank: pauses, each with what they take outside the windows over inside, and its work."""

    pauses: Scaled
    work: PhaseWork


@dataclass(frozen=True)
class Untraced:
    """The step outside the windows and what reproduces it. `host`: by position of the rank."""

    step_us: float
    pace: float
    host: Mapping[int, HostTime]
    scenario: Scenario
    outcome: Outcome

    def under(self, graph: Graph, scenario: Scenario, as_peers: frozenset[int] = frozenset()) -> Scenario:
        """The scenario without the profiler. `as_peers`: positions of ranks that do in it what their peers do."""
        return _unprofiled(graph, self.host, scenario, self.pace, as_peers)


def without_profiler(graph: Graph, baseline: Outcome, traced_us: float, untraced_us: float | None) -> Untraced | None:
    """The pace of the host at which a replay gives the step measured outside the windows; None where none was.

    Where the host's pace does not decide how long a step takes (the device does, or loader workers that do not keep
    up), it is that of the step timers.
    """
    if untraced_us is None or traced_us <= 0 or baseline.span_ns <= 0:
        return None
    wanted = untraced_us / traced_us
    pauses = {rank.position: _pauses(rank) for rank in graph.ranks}
    works = without_waits({rank.position: phase_work(rank, pauses[rank.position]) for rank in graph.ranks})
    host = {position: HostTime(pauses[position], work) for position, work in works.items()}
    at = partial(_at, graph, host, untraced_us)
    runs = {pace: at(pace) for pace in (1.0, FASTEST)}
    steps = {pace: run.outcome.relative_to(baseline) for pace, run in runs.items()}  # over the recorded step
    if steps[FASTEST] > (1 - DECIDES_SHARE) * steps[1.0]:
        timed = None if any(own.work.paces for own in host.values()) else untraced_pace([r.facts for r in graph.ranks])
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


def _unprofiled(
    graph: Graph,
    host: Mapping[int, HostTime],
    scenario: Scenario,
    pace: float,
    as_peers: frozenset[int] = frozenset(),
) -> Scenario:
    """The scenario without the profiler, the host at this pace on top of what its timers say."""
    scaled = {}
    transfer = dict(scenario.transfer_ns)
    usual = peers_paces({position: own.work for position, own in host.items()}, as_peers) if as_peers else {}
    for rank in graph.ranks:
        own, like = host[rank.position], usual if rank.position in as_peers else {}
        if not rank.facts.is_device_rank:
            moved = transfer.get(rank.position, rank.ops.transfer_ns)
            handed = 1 + HANDED_SHARE * (pace * own.work.mean(like) - 1)
            transfer[rank.position] = np.round(moved * handed).astype(np.int64)
        parts = (*own.pauses, *own.work.scaled(pace, like))
        scaled[rank.position] = on_top(scenario.host_scale.get(rank.position, ()), parts)
    return replace(scenario, host_scale=scaled, transfer_ns=transfer)


def _pauses(rank: RankGraph) -> Scaled:
    shares, facts = untraced_pauses(rank.facts), rank.facts
    return tuple((intervals.union(*facts.spans_of(cause).bounds), share) for cause, share in shares.items())


def _at(graph: Graph, host: Mapping[int, HostTime], step_us: float, pace: float) -> Untraced:
    scenario = _unprofiled(graph, host, Scenario(), pace)
    return Untraced(step_us, pace, host, scenario, simulate(graph, scenario))

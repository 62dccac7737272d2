"""The recorded job as it runs outside trace windows: the profiler costs host time per operator, and nothing else.

Kernels and transfers of a device take as long with it as without; operators, the Python between them, and collectives
that run on the host's threads do not. Pauses (loading, collecting garbage, saving) take what capture timed outside the
windows, and a host that idles between two operators idles on. One pace for the other host time of all ranks is found
such that the replay gives the step measured there; what the machine does slower or faster meanwhile is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import free_host
from ddprof.analyzers.job.untraced_steps import untraced_pauses
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
LONG_GAP_NS = 1_000_000  # the profiler adds microseconds to an operator, so a longer gap between two is not its doing


@dataclass(frozen=True)
class Untraced:
    """The step outside the windows and what reproduces it."""

    step_us: float
    pace: float
    scenario: Scenario
    outcome: Outcome


def without_profiler(graph: Graph, baseline: Outcome, traced_us: float, untraced_us: float | None) -> Untraced | None:
    """The pace of the host at which a replay gives the step measured outside the windows; None where none was.

    Where the host's pace does not decide how long a step takes (the device does), it stays what it was.
    """
    if untraced_us is None or traced_us <= 0 or baseline.span_ns <= 0:
        return None
    wanted = untraced_us / traced_us
    found = _at(graph, untraced_us, 1.0)
    known = {1.0: found.outcome.relative_to(baseline)}  # pace -> step, relative to the recorded one
    pace = SLOWEST if wanted > known[1.0] else FASTEST
    for _ in range(TRIES):
        nearest = min(known.values(), key=lambda step: abs(step - wanted))
        if abs(nearest - wanted) <= CLOSE:
            break
        found = _at(graph, untraced_us, pace)
        known[pace] = found.outcome.relative_to(baseline)
        below = max((p for p, step in known.items() if step <= wanted), default=None)
        above = min((p for p, step in known.items() if step > wanted), default=None)
        if below is None or above is None:  # out of reach: the device or a wait decides
            break
        pace = below + (above - below) * (wanted - known[below]) / (known[above] - known[below])
    return found


def unprofiled(graph: Graph, scenario: Scenario, pace: float) -> Scenario:
    """The scenario without the profiler, the host at this pace."""
    host = {}
    transfer = dict(scenario.transfer_ns)
    for rank in graph.ranks:
        pauses = tuple(
            (intervals.union(*host_cause(rank.facts, cause)), share)
            for cause, share in untraced_pauses(rank.facts).items()
        )
        work = _busy(rank.facts)
        for spans, _ in pauses:
            work = intervals.subtract(work, spans)
        if not rank.facts.is_device_rank:
            moved = transfer.get(rank.position, rank.ops.transfer_ns)
            transfer[rank.position] = np.round(moved * (1 + HANDED_SHARE * (pace - 1))).astype(np.int64)
        host[rank.position] = on_top(scenario.host_scale.get(rank.position, ()), (*pauses, (work, pace)))
    return replace(scenario, host_scale=host, transfer_ns=transfer)


def _busy(facts: RankFacts) -> Intervals:
    """Operators and the Python between them, without the gaps in which the host must do something else."""
    start, end = free_host(facts)
    long = end - start > LONG_GAP_NS
    return intervals.subtract(running(facts), intervals.union(start[long], end[long]))


def _at(graph: Graph, step_us: float, pace: float) -> Untraced:
    scenario = unprofiled(graph, Scenario(), pace)
    return Untraced(step_us, pace, scenario, simulate(graph, scenario))

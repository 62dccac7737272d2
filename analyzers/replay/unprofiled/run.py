"""The recorded run as it would be without the profiler: the baseline for gains of an unprofiled step.

The profiler costs host time per operator and nothing else. Kernels and transfers of a device therefore take as long
without it; the following host time does not:

- Pauses (loading, garbage collection, saving) take what the step timers measured outside the trace window.
- Work (operators and the Python between them) takes, by phase, the ratio that the phase timers give (`phases`).
- Collectives that run on the host's threads (CPU ranks) are scaled in part.
- Time in which the host idles between two operators stays.
- Pauses that the trace window lacks (saving every eighth step) are added as they are: no change but one of theirs moves
  them. So is what makes unprofiled steps of a device longer than profiled ones, as the profiler shortens nothing.

On top of these comes one ratio for all work, found by search: the one with which the replay returns the unprofiled step
that the timers measured. What the machine itself does faster or slower outside the window is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ddprof.analyzers.job.whole_run.unprofiled_steps import unprofiled_ratio
from ddprof.analyzers.replay.baseline import Baseline, simulate_with_interference
from ddprof.analyzers.replay.host_time import on_top
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.unprofiled.phases import (
    MIN_RATIO,
    PhaseWork,
    phase_work,
    typical_ratios,
    without_waits,
)

MAX_TRIES = 6  # replays of the search: the step is a nearly straight line in the ratio
CLOSE_SHARE = 0.003  # of the profiled step: a replay this near to the measured unprofiled step ends the search
# Share of the step that the ratio must be able to move. Below it something else holds the step, which then tells
# nothing of the ratio (set on the workload runs with slow loader workers, 2026-11-22).
MIN_HELD_SHARE = 0.15


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

"""Baselines of gains: replays with a measured step, of the profiled or the unprofiled run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.simulate import Outcome, simulate

MIN_INTERFERENCE = 0.005  # relative: less moves a step by nothing that could be seen


@dataclass(frozen=True, eq=False)
class Baseline:
    """A run as measured: its changes to the recording, the outcome of its replay, and its measured step (us), of which
    `apart_us` in pauses that the recording lacks.
    """

    scenario: Scenario
    outcome: Outcome
    step_us: float
    apart_us: float = field(default=0.0, kw_only=True)

    def under(self, graph: Graph, scenario: Scenario, as_peers: frozenset[int]) -> Scenario:
        """The scenario in this run. `as_peers`: positions of ranks that do in it what their peers do."""
        return scenario


def simulate_with_interference(graph: Graph, scenario: Scenario, recorded: Outcome) -> Outcome:
    """Simulate the scenario with kernels as fast as what runs beside them allows; `recorded`: the unmodified replay."""
    outcome = simulate(graph, scenario)
    if graph.interference <= MIN_INTERFERENCE:
        return outcome
    return simulate(graph, _relieved(graph, scenario, outcome, recorded))


def _relieved(graph: Graph, scenario: Scenario, outcome: Outcome, recorded: Outcome) -> Scenario:
    """Kernels, which were recorded with the communication of `recorded`, shorter by what of it is gone in `outcome`.

    Communication counts with the time that it waits: its kernels hold their share of the device meanwhile.
    """
    durations = dict(scenario.dur_ns)
    share = graph.interference / (1 + graph.interference)
    for index, rank in enumerate(graph.ranks):
        before, after = recorded.comm_busy_ns[index], outcome.comm_busy_ns[index]
        if before <= 0 or after >= before:
            continue
        dur = durations.get(rank.position, rank.ops.dur_ns)
        relief = share * rank.beside * (1 - after / before)
        durations[rank.position] = np.round(dur * (1 - relief)).astype(np.int64)
    return replace(scenario, dur_ns=durations)

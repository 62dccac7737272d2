"""Prices: what changes gain, by replaying the recorded run under them; as an interval, and never as a sum of gains.

Predictions are bias-cancelled: measured step * replay under the changes / unmodified replay, so that an error which
both replays make cancels. The interval holds the uncertainty of the change itself, the spread of the steps and the
replay error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.unprofiled_steps import unprofiled_step_us
from ddprof.analyzers.replay.changes.apply import as_peers, at_rates, levelled, scenario_of, with_implied
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.shared_cores import SharedHost, hosts_sharing_cores, simulate_on_shared_cores
from ddprof.analyzers.replay.simulate import Outcome, simulate
from ddprof.analyzers.replay.unprofiled.run import UnprofiledRun, unprofiled_run
from ddprof.findings import Candidate, Change, Recoverable

MIN_CONTENTION = 0.005
# Compute of CPU ranks that share cores runs up to this much faster once other ranks no longer spin or sleep
# (docs/workloads.md).
CPU_DRIFT = 0.2
LOW_CONFIDENCE_ERROR = 0.05  # above it predictions are marked (OSDI'25 discards such traces)


@dataclass(frozen=True)
class Pricer:
    """Replays changes against one baseline."""

    graph: Graph
    measures: Measures
    baseline: Outcome
    hosts: tuple[SharedHost, ...] = ()
    unprofiled: UnprofiledRun | None = None  # where capture timed unprofiled steps
    _predicted_us: dict[tuple[Change, ...], float] = field(default_factory=dict, repr=False, compare=False)
    _unprofiled_us: dict[tuple[Change, ...], float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def error(self) -> float | None:
        """|replayed - measured| / measured of the unmodified run; None where nothing could be replayed."""
        if self.graph.measured_ns <= 0 or not self.graph.ranks:
            return None
        return abs(self.baseline.span_ns - self.graph.measured_ns) / self.graph.measured_ns

    def step_us(self, changes: tuple[Change, ...]) -> float:
        """Predicted step under all changes at once."""
        if not changes or self.baseline.span_ns <= 0:
            return self.measures.step_us
        if changes not in self._predicted_us:
            self._predicted_us[changes] = self._replayed_us(changes)
        return self._predicted_us[changes]

    def _replayed_us(self, changes: tuple[Change, ...]) -> float:
        changes = with_implied(changes)
        scenario = scenario_of(changes, self.graph, self.measures)
        outcome = self._simulated(changes, scenario, (Scenario(), self.baseline))
        return at_rates(changes, self.measures.step_us * outcome.relative_to(self.baseline), self.measures)

    def _simulated(self, changes: tuple[Change, ...], scenario: Scenario, before: tuple[Scenario, Outcome]) -> Outcome:
        if self.hosts:
            level = levelled(changes, self.graph, self.measures)
            return simulate_on_shared_cores(self.graph, scenario, self.hosts, before, level)
        outcome = simulate(self.graph, scenario)
        if self.graph.contention > MIN_CONTENTION:
            outcome = simulate(self.graph, self._relieved(scenario, outcome))
        return outcome

    def unprofiled_us(self, changes: tuple[Change, ...]) -> float | None:
        """Predicted step without the profiler under all changes at once; None where no unprofiled step was timed."""
        if self.unprofiled is None or self.unprofiled.outcome.span_ns <= 0:
            return None
        if changes not in self._unprofiled_us:
            wanted = with_implied(changes)
            before = (self.unprofiled.scenario, self.unprofiled.outcome)
            peers = as_peers(wanted, self.graph, self.measures)
            scenario = self.unprofiled.under(self.graph, scenario_of(wanted, self.graph, self.measures), peers)
            step_us = self.unprofiled.step_us * self._simulated(wanted, scenario, before).relative_to(before[1])
            self._unprofiled_us[changes] = at_rates(wanted, step_us, self.measures)
        return self._unprofiled_us[changes]

    def unprofiled_gain(self, candidate: Candidate, gain: Recoverable) -> Recoverable | None:
        """What the candidate's changes gain of an unprofiled step; its range is that of `gain`, of the profiled one."""
        if self.unprofiled is None or self.measures.step_us <= 0:
            return None
        share = self.unprofiled.step_us / self.measures.step_us
        after_us = self.unprofiled_us(candidate.changes)
        whole_us = self.gain_us(candidate)
        value = gain.value * share
        if candidate.changes and after_us is not None and whole_us > 0:
            value = max(0.0, self.unprofiled.step_us - after_us) * min(1.0, gain.value / whole_us)
        if candidate.ceiling_us is not None:
            value = min(value, candidate.ceiling_us * share)
        low, high = value - (gain.value - gain.low) * share, value + (gain.high - gain.value) * share
        return Recoverable(value, max(0.0, low), min(self.unprofiled.step_us, high))

    def _relieved(self, scenario: Scenario, outcome: Outcome) -> Scenario:
        """Kernels speed up where communication beside them, waiting included, became shorter."""
        durations = dict(scenario.dur_ns)
        share = self.graph.contention / (1 + self.graph.contention)
        for index, rank in enumerate(self.graph.ranks):
            before, after = self.baseline.comm_busy_ns[index], outcome.comm_busy_ns[index]
            if before <= 0 or after >= before:
                continue
            dur = durations.get(rank.position, rank.ops.dur_ns)
            relief = share * rank.beside * (1 - after / before)
            durations[rank.position] = np.round(dur * (1 - relief)).astype(np.int64)
        return replace(scenario, dur_ns=durations)

    def gain_us(self, candidate: Candidate, given: tuple[Change, ...] = ()) -> float:
        """Gain (us) of the candidate's changes on top of `given`: not negative, nor above the candidate's ceiling."""
        gain = 0.0
        if candidate.changes:
            before = self.step_us(given) if given else self.measures.step_us
            gain = before - self.step_us(given + candidate.changes)
        elif candidate.ceiling_us is not None:
            gain = candidate.ceiling_us
        if candidate.ceiling_us is not None:
            gain = min(gain, candidate.ceiling_us)
        return max(0.0, gain)

    def interval(self, candidate: Candidate, gain_us: float) -> Recoverable:
        """The gain with the range it is believed in."""
        if candidate.ceiling_us == 0:
            return Recoverable(0.0, 0.0, 0.0)
        margin = self._margin_us(gain_us, candidate.band) + self._drift_us(gain_us)
        return Recoverable(gain_us, max(0.0, gain_us - margin), min(self.measures.step_us, gain_us + margin))

    def range_us(self, reached_us: float, doubt_us: float) -> tuple[float, float]:
        """Least and most (us) that a predicted step is believed to be; `doubt_us`: that of the change itself."""
        margin = doubt_us + self._margin_us(self.measures.step_us - reached_us, 0.0)
        return max(0.0, reached_us - margin), reached_us + margin

    def _margin_us(self, gain_us: float, band: float) -> float:
        """Half the width of what a predicted gain (or loss) is believed in; `band`: relative doubt of the change."""
        error = (self.error or 0.0) * self.measures.step_us
        spread = self._step_spread_us() / np.sqrt(max(1, self.measures.steps))
        return float(band * abs(gain_us) + error + min(spread, 0.25 * abs(gain_us)))

    def _drift_us(self, gain_us: float) -> float:
        """What else changes on CPU ranks when so much of the step goes; grows with it, to CPU_DRIFT of what is left."""
        step_us = self.measures.step_us
        if self.measures.job.ranks[0].is_device_rank or step_us <= 0:
            return 0.0
        return CPU_DRIFT * max(0.0, step_us - gain_us) * min(1.0, 2 * gain_us / step_us)

    def _step_spread_us(self) -> float:
        steps = np.array(self.measures.job.per_step_ns, float) / 1e3
        return float(steps.std(ddof=1)) if len(steps) > 1 else 0.0


def pricer(graph: Graph, measures: Measures) -> Pricer:
    """A pricer with the unmodified run replayed."""
    baseline = simulate(graph)
    unprofiled = unprofiled_run(graph, baseline, measures.step_us, unprofiled_step_us(measures.job))
    return Pricer(graph, measures, baseline, hosts_sharing_cores(graph), unprofiled)

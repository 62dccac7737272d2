"""Prices of changes by replaying the recorded run under them; gains are never summed.

Predictions are bias-cancelled: measured step * replay under the changes / unmodified replay, so that errors common to
both replays cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.work import host_work
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.unprofiled_steps import apart_us, unprofiled_step_us
from ddprof.analyzers.replay.baseline import Baseline, simulate_with_interference
from ddprof.analyzers.replay.changes.ranks import chosen
from ddprof.analyzers.replay.changes.table import KINDS, kind_of
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.shared_cores import SharedHost, hosts_sharing_cores, simulate_on_shared_cores
from ddprof.analyzers.replay.simulate import simulate
from ddprof.analyzers.replay.unprofiled import UnprofiledRun, unprofiled_run
from ddprof.findings import Candidate, Change, Recoverable

MAX_KNOWN = 10_000  # replays remembered: a report makes hundreds, the sliders of a page that is open for days no end
LOW_CONFIDENCE_ERROR = 0.05  # above it predictions are marked (OSDI'25 discards such traces)


@dataclass(frozen=True)
class ToldPrice:
    """Gain of a finding alone, in a traced step and in one without the profiler (None where none was timed)."""

    gain: Recoverable
    unprofiled: Recoverable | None


@dataclass(frozen=True)
class Pricer:
    """Replays changes, against the profiled run and, where its steps were timed, against the unprofiled one.

    `told`: prices of the report's findings by their changes; they know of the whole run what its replay does not.
    """

    graph: Graph
    measures: Measures
    profiled: Baseline
    hosts: tuple[SharedHost, ...] = ()
    unprofiled: UnprofiledRun | None = None
    told: dict[tuple[Change, ...], ToldPrice] = field(default_factory=dict, repr=False, compare=False)
    _known_us: dict[tuple[Baseline, tuple[Change, ...]], float] = field(default_factory=dict, repr=False, compare=False)
    _latest: dict[tuple[Change, ...], Scenario] = field(default_factory=dict, repr=False, compare=False)

    @property
    def error(self) -> float | None:
        """|replayed - measured| / measured of the unmodified run; None where nothing could be replayed."""
        if self.graph.measured_ns <= 0 or not self.graph.ranks:
            return None
        return abs(self.profiled.outcome.span_ns - self.graph.measured_ns) / self.graph.measured_ns

    def step_us(self, changes: tuple[Change, ...]) -> float:
        """Predicted profiled step under all changes at once."""
        return self._predicted_us(self.profiled, changes)

    def told_price(self, changes: tuple[Change, ...]) -> ToldPrice | None:
        """The price that a finding has for these changes, or for what one of them amounts to: as many workers as make
        every batch in time are batches that are ready. None where no finding prices them.
        """
        implied = tuple(Change(name) for name in kind_of(changes[0]).implies) if len(changes) == 1 else ()
        price = self.told.get(implied or changes)
        if price is None or (implied and self.measures.step_us - self.step_us(changes) < price.gain.value):
            return None
        return price

    def told_step_us(self, changes: tuple[Change, ...]) -> float:
        """Predicted profiled step under all changes at once: by the price of the finding that is of them, else by the
        replay and what findings know of some of them beyond it.
        """
        told = self.told_price(changes)
        if told is not None:
            return self.measures.step_us - told.gain.value
        step_us = self.step_us(changes)
        parts = {part for part in (*self.told, *((change,) for change in changes)) if set(part) < set(changes)}
        prices = [(part, price) for part in parts if (price := self.told_price(part)) is not None]
        if not prices:
            return step_us
        beyond_us = sum(self.measures.step_us - price.gain.value - self.step_us(part) for part, price in prices)
        return max(min(step_us, self.floor_us(changes)), step_us + beyond_us)

    @property
    def bare_us(self) -> float | None:
        """The step without the profiler; None where none was timed."""
        return None if self.unprofiled is None else self.unprofiled.step_us

    def unprofiled_us(self, changes: tuple[Change, ...]) -> float | None:
        """Predicted step without the profiler under all changes at once; None where no unprofiled step was timed."""
        return None if self.unprofiled is None else self._predicted_us(self.unprofiled, changes)

    def _predicted_us(self, baseline: Baseline, changes: tuple[Change, ...]) -> float:
        if not changes or baseline.outcome.span_ns <= 0:
            return baseline.step_us
        known_us = self._known_us.get((baseline, changes))
        if known_us is not None:
            return known_us
        wanted = _with_implied(changes)
        peers = _as_peers(wanted, self.graph, self.measures)
        scenario = baseline.under(self.graph, self._scenario(wanted), peers)
        if self.hosts:
            level = peers | _levelled(wanted, self.graph, self.measures)
            outcome = simulate_on_shared_cores(self.graph, scenario, self.hosts, baseline, level)
        else:
            outcome = simulate_with_interference(self.graph, scenario, self.profiled.outcome)
        moved_us = (baseline.step_us - baseline.apart_us) * outcome.relative_to(baseline.outcome)
        step_us = baseline.apart_us + moved_us
        for to_step, change in ((kind_of(change).rate, change) for change in wanted):
            step_us = step_us if to_step is None else to_step(change, step_us, self.measures)
        if len(self._known_us) >= MAX_KNOWN:
            self._known_us.clear()
        self._known_us[baseline, changes] = step_us
        return step_us

    def _scenario(self, wanted: tuple[Change, ...]) -> Scenario:
        """The scenario of changes; the last is kept: a step, one without the profiler and a floor are asked of it."""
        scenario = self._latest.get(wanted)
        if scenario is None:
            self._latest.clear()
            scenario = self._latest[wanted] = scenario_of(wanted, self.graph, self.measures)
        return scenario

    def unprofiled_gain(self, candidate: Candidate, gain: Recoverable) -> Recoverable | None:
        """Gain of the candidate's changes in an unprofiled step, with the range of `gain`, of the profiled one."""
        if self.unprofiled is None or self.measures.step_us <= 0:
            return None
        apart_us = self.unprofiled.apart_us if candidate.changes else 0.0  # without: a share of all that was timed
        share = (self.unprofiled.step_us - apart_us) / self.measures.step_us
        after_us = self.unprofiled_us(candidate.changes)
        whole_us = self.gain_us(candidate)
        value = gain.value * share
        if candidate.changes and after_us is not None and whole_us > 0:
            value = max(0.0, self.unprofiled.step_us - after_us) * min(1.0, gain.value / whole_us)
        if candidate.ceiling_us is not None:
            value = min(value, candidate.ceiling_us * share)
        most_us = self.unprofiled.step_us
        if candidate.timed_us is not None and candidate.timed_us < value:
            share, value, most_us = share * candidate.timed_us / value, candidate.timed_us, candidate.timed_us
        low, high = value - (gain.value - gain.low) * share, value + (gain.high - gain.value) * share
        return Recoverable(value, max(0.0, low), min(most_us, high))

    def gain_us(self, candidate: Candidate, given: tuple[Change, ...] = ()) -> float:
        """Gain (us) of the candidate's changes on top of `given`: at least 0 and at most the candidate's ceiling."""
        gain = 0.0
        if candidate.changes:
            before = self.step_us(given) if given else self.measures.step_us
            gain = before - self.step_us(given + candidate.changes)
        elif candidate.ceiling_us is not None:
            gain = candidate.ceiling_us
        if candidate.ceiling_us is not None:
            gain = min(gain, candidate.ceiling_us)
        return max(0.0, gain)

    def floor_us(self, changes: tuple[Change, ...]) -> float:
        """The least step (us) that any replay of the changes leaves: compute as they leave it and, where they do not
        touch communication, the transfers that nothing hides."""
        scenario = self._scenario(_with_implied(changes))
        compute_us = self.measures.cause_us("compute").astype(float)
        for rank in self.graph.ranks:
            taken_ns = scenario.dur_ns.get(rank.position)
            if taken_ns is not None:
                is_work = ~rank.ops.is_comm
                before_ns = float(rank.ops.dur_ns[is_work].sum())
                compute_us[rank.position] *= float(taken_ns[is_work].sum()) / before_ns if before_ns else 1.0
            scaled = scenario.host_scale.get(rank.position, ())
            steps = intervals.union(*rank.facts.marks) if scaled else intervals.EMPTY
            work = intervals.intersect(host_work(rank.facts), steps)  # of a CPU rank
            for spans, factor in scaled:
                scaled_ns = intervals.length(intervals.intersect(work, intervals.union(*spans)))
                compute_us[rank.position] -= max(0.0, 1.0 - factor) * scaled_ns / 1e3 / len(rank.facts.steps)
        compute_us = np.maximum(compute_us, 0.0)
        touches = scenario.transfer_ns or scenario.dissolved or scenario.on_time
        keeps_transfers = bool(changes) and not touches
        transfer_us = self.measures.cause_us("comm_transfer") if keeps_transfers else np.zeros(len(compute_us))
        return float((compute_us + transfer_us).mean()) if len(compute_us) else 0.0


def pricer(graph: Graph, measures: Measures) -> Pricer:
    """A pricer with the unmodified run replayed."""
    profiled = Baseline(Scenario(), simulate(graph), measures.step_us)
    unprofiled = unprofiled_run(graph, profiled, unprofiled_step_us(measures.job.ranks), apart_us(measures.job))
    return Pricer(graph, measures, profiled, hosts_sharing_cores(graph), unprofiled)


def _with_implied(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The changes and those that they imply, each once: host time removed twice would be too much."""
    implied = (Change(name) for change in changes for name in kind_of(change).implies)
    return tuple(dict.fromkeys((*changes, *implied)))


def scenario_of(changes: tuple[Change, ...], graph: Graph, measures: Measures) -> Scenario:
    """All changes of the recorded run at once; a retiming replaces transfers that other changes scaled."""
    result = Scenario()
    for change in changes:
        to_scenario = kind_of(change).scenario
        if to_scenario is not None:
            result = result + to_scenario(change, graph, measures)
    of_kinds = ((kind.retiming, c) for kind in KINDS.values() for c in changes if c.kind == kind.name)
    for retiming, change in of_kinds:
        if retiming is None:
            continue
        transfers = dict(result.transfer_ns)
        for position, (rows, transfer_ns) in retiming(change, graph, measures, changes).items():
            rank = next(r for r in graph.ranks if r.position == position)
            transfers[position] = transfers.get(position, rank.ops.transfer_ns).copy()
            transfers[position][rows] = transfer_ns
        result = replace(result, transfer_ns=transfers)
    return result


def _levelled(changes: tuple[Change, ...], graph: Graph, measures: Measures) -> frozenset[int]:
    """Positions of ranks whose work the changes bring to the time of their peers, or to the mean of all."""
    level = [change for change in changes if kind_of(change).levels_work]
    return frozenset(rank.position for change in level for rank, _ in chosen(change, graph, measures))


def _as_peers(changes: tuple[Change, ...], graph: Graph, measures: Measures) -> frozenset[int]:
    """Positions of ranks that, under the changes, do only what their peers do."""
    like_peers = [change for change in changes if change.target == "peers"]
    return frozenset(rank.position for change in like_peers for rank, _ in chosen(change, graph, measures))

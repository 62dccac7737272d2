"""Prices of changes by replaying the recorded run under them; gains are never summed.

Predictions are bias-cancelled: measured step * replay under the changes / unmodified replay, so that errors common to
both replays cancel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.execution.operations import Limits
from ddprof.analyzers.facts.work import host_work, running
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.oversubscription import shared_cores
from ddprof.analyzers.job.whole_run.unprofiled_steps import apart_us, unprofiled_step_us
from ddprof.analyzers.replay.changes.loader import fetch_costs
from ddprof.analyzers.replay.changes.table import KINDS, kind_of
from ddprof.analyzers.replay.host_time import HostTimeline, Scaled, by_level, on_top
from ddprof.analyzers.replay.model import Graph, Scenario, chosen
from ddprof.analyzers.replay.simulate import Baseline, Outcome, simulate, simulate_with_interference
from ddprof.analyzers.replay.unprofiled import UnprofiledRun, unprofiled_run
from ddprof.findings import Candidate, Change, Recoverable
from ddprof.intervals import Intervals
from ddprof.tables import Array

# Oversubscription: CPU ranks of one host share its cores, so concurrent work slows down.
#
# In a recording with a late rank the others wait for it, which takes no core; without lateness all compute at once. So
# the replay counts the threads busy during each piece of work in the recording and in the scenario, and lengthens the
# piece accordingly. Computing threads and those that move data (gloo copies and adds on the CPU) count; waiting,
# sleeping and reading storage do not.

ROUNDS = 2  # of scaling and simulating again; a third changes next to nothing


class SharedHost(Struct, frozen=True):
    """CPU ranks (indices into Graph.ranks) on one host and the number of cores they may use."""

    ranks: tuple[int, ...]
    cores: int
    limits: Limits

    def factor(self, busy: Array) -> Array:
        """Duration of work with so many busy threads relative to its duration alone."""
        beside = (np.clip(busy, 1, self.cores) - 1) / max(1, self.cores - 1)
        return np.asarray((1 + self.limits.all_cores_excess * beside) * np.maximum(1.0, busy / self.cores))


def hosts_sharing_cores(graph: Graph) -> tuple[SharedHost, ...]:
    """Hosts where ranks can oversubscribe cores: several CPU ranks, all of them traced, on a known number of cores."""
    by_host: dict[str, list[int]] = defaultdict(list)
    for index, rank in enumerate(graph.ranks):
        by_host[rank.facts.identity.host or ""].append(index)
    hosts = []
    for ranks in by_host.values():
        shared = shared_cores([graph.ranks[index].facts for index in ranks])
        counted = [s for s in shared if s is not None and s[0] == len(ranks)]
        if len(counted) == len(ranks) > 1:
            hosts.append(SharedHost(tuple(ranks), counted[0][1], graph.ranks[ranks[0]].execution.limits))
    return tuple(hosts)


def simulate_on_shared_cores(
    graph: Graph,
    scenario: Scenario,
    hosts: Sequence[SharedHost],
    baseline: Baseline,
    levelled: frozenset[int] = frozenset(),
) -> Outcome:
    """Simulate the scenario, each piece of work scaled by the load of the cores in it over that in the baseline.

    `levelled`: positions of ranks whose work takes their peers' time in the scenario, scaled from the load during the
    peers' work.
    """
    outcome = simulate(graph, scenario)
    recorded = {host: _Load(host, graph, baseline.scenario, baseline.outcome) for host in hosts}
    loaded = scenario
    for _ in range(ROUNDS):
        host_scale: dict[int, Scaled] = dict(scenario.host_scale)
        transfer = dict(scenario.transfer_ns)
        for host in hosts:
            load = _Load(host, graph, loaded, outcome)
            for index in host.ranks:
                rank = graph.ranks[index]
                peers = [i for i in host.ranks if graph.ranks[i].position not in levelled] or list(host.ranks)
                was = recorded[host].of_all_work(peers) if rank.position in levelled else recorded[host].of_work(index)
                factor = load.of_work(index) / was
                given = scenario.host_scale.get(rank.position, ())
                host_scale[rank.position] = on_top(given, by_level(running(rank.facts), factor))
                transfer_ns = scenario.transfer_ns.get(rank.position, rank.ops.transfer_ns)
                factor = load.of_transfers(index) / recorded[host].of_transfers(index)
                transfer[rank.position] = np.round(transfer_ns * factor).astype(np.int64)
        loaded = replace(scenario, host_scale=host_scale, transfer_ns=transfer)
        outcome = simulate(graph, loaded)
    return outcome


class _Load:
    """Busy threads of a host at each instant of a simulated run, and the resulting slowdown."""

    def __init__(self, host: SharedHost, graph: Graph, scenario: Scenario, outcome: Outcome) -> None:
        self._work: dict[int, Intervals] = {}
        self._transfers: dict[int, Intervals] = {}
        at: list[Array] = []
        change: list[Array] = []
        for index in host.ranks:
            rank = graph.ranks[index]
            clock, begun = HostTimeline(rank, scenario), np.asarray(outcome.sections_ns[index], np.int64)
            working, loading = running(rank.facts), intervals.union(*rank.facts.spans_of("dataloader").bounds)
            self._work[index] = clock.simulated(working[0], begun), clock.simulated(working[1], begun)
            fetching = clock.simulated(loading[0], begun), clock.simulated(loading[1], begun)
            ends = np.asarray(outcome.ends_ns[index], np.int64)[rank.ops.node]
            transfer_ns = scenario.transfer_ns.get(rank.position, rank.ops.transfer_ns)
            self._transfers[index] = ends - transfer_ns, ends
            # Of the training thread's loader time on a core: none where that is unknown, or workers load.
            costs = fetch_costs(rank.facts, None)
            share = costs.cpu_share or 0.0 if costs is not None and costs.source == "inline" else 0.0
            for (start, end), threads in (
                (self._work[index], 1.0),
                (self._transfers[index], host.limits.moving_threads),
                (fetching, share),
            ):
                real = end > start
                at += [start[real], end[real]]
                change += [np.full(int(real.sum()), threads), np.full(int(real.sum()), -threads)]
        times, changes = np.concatenate(at), np.concatenate(change)
        order = np.argsort(times, kind="stable")
        self._at = times[order].astype(float)
        # Progress at each instant, relative to work that runs alone, and its integral over time.
        speed = 1.0 / host.factor(np.cumsum(changes[order]))
        self._done = np.concatenate(([0.0], np.cumsum(speed[:-1] * np.diff(self._at)))) if len(order) else speed

    def of_work(self, index: int) -> Array:
        """Slowdown of each piece of a rank's work against running alone, shape (pieces,)."""
        return self._factors(self._work[index])

    def of_all_work(self, indices: Sequence[int]) -> float:
        """Slowdown of all work of several ranks against running alone."""
        spans = [self._work[index] for index in indices]
        took = [np.maximum(end - start, 0) for start, end in spans]
        done = sum(float((length / self._factors(s)).sum()) for s, length in zip(spans, took, strict=True))
        return float(sum(length.sum() for length in took)) / done if done > 0 else 1.0

    def of_transfers(self, index: int) -> Array:
        """Slowdown of each transfer of a rank against running alone, shape (operations,)."""
        return self._factors(self._transfers[index])

    def _factors(self, spans: Intervals) -> Array:
        start, end = spans[0].astype(float), spans[1].astype(float)
        if not len(self._at):
            return np.ones(len(start))
        done = np.interp(end, self._at, self._done) - np.interp(start, self._at, self._done)
        return np.where(end > start, (end - start) / np.maximum(done, 1e-9), 1.0)


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
        """Predicted profiled step under all changes at once: by the price of the finding that proposes them, else by
        the replay and what findings know of some of them beyond it.
        """
        of_finding = self.told_price(changes)
        if of_finding is not None:
            return self.measures.step_us - of_finding.gain.value
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
        if candidate.most_us is not None:
            value = min(value, candidate.most_us * share)
        most_us = self.unprofiled.step_us
        if candidate.timed_us is not None and candidate.timed_us < value:
            share, value, most_us = share * candidate.timed_us / value, candidate.timed_us, candidate.timed_us
        low, high = value - (gain.value - gain.low) * share, value + (gain.high - gain.value) * share
        return Recoverable(value, max(0.0, low), min(most_us, high))

    def gain_us(self, candidate: Candidate, given: tuple[Change, ...] = ()) -> float:
        """Gain (us) of the candidate's changes on top of `given`: at least 0 and at most what it may gain."""
        gain = np.inf
        if candidate.changes:
            before = self.step_us(given) if given else self.measures.step_us
            gain = before - self.step_us(given + candidate.changes)
        return max(0.0, gain if candidate.most_us is None else min(gain, candidate.most_us))

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

"""Oversubscription: CPU ranks of one host share its cores, so concurrent work slows down.

In a recording with a late rank the others wait for it, which takes no core; without lateness all compute at once. So
the replay counts the threads busy during each piece of work in the recording and in the scenario, and lengthens the
piece accordingly. Computing threads and those that move data (gloo copies and adds on the CPU) count; waiting, sleeping
and reading storage do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.execution.protocol import Limits
from ddprof.analyzers.facts.cpu.cores import shared_cores
from ddprof.analyzers.facts.work import running
from ddprof.analyzers.replay.baseline import Baseline
from ddprof.analyzers.replay.changes.loader.fetch_costs import fetch_costs
from ddprof.analyzers.replay.host_time import HostTimeline, Scaled, by_level, on_top
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.simulate import Outcome, simulate
from ddprof.intervals import Intervals
from ddprof.tables import Array

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

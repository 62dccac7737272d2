"""CPU ranks of one host share its cores: what two of them do at once takes each of them longer.

In a recording with a late rank the others wait, which takes no core; once nobody is late all compute side by side. So
the replay asks how many threads were busy beside each piece of work in the recording and how many are in the scenario,
and stretches the piece by what that changes. Threads that compute count, and those that move data (gloo copies and adds
on the CPU); waiting, sleeping and reading storage do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.cpu.cores import shared_cores
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.replay.changes.loader.fetch_costs import fetch_costs
from ddprof.analyzers.replay.host_time import HostTimeline, Scaled, by_level, on_top, running
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.simulate import Outcome, simulate
from ddprof.intervals import Intervals
from ddprof.tables import Array

# With every core busy each runs a little slower than one alone: shared caches and memory, lower clocks. Convolutions
# and products on two virtual cores, one process against two: 0 to 10 %.
ALL_CORES = 0.05
MOVING = 1.0  # of a core: gloo copies and adds, the kernel copies twice more
ROUNDS = 2  # of stretching and simulating again; a third changes next to nothing


@dataclass(frozen=True)
class Host:
    """CPU ranks (indices into Graph.ranks) on one host and the cores that they may use."""

    ranks: tuple[int, ...]
    cores: int

    def stretch(self, busy: Array) -> Array:
        """How much longer work takes with so many busy threads than alone."""
        beside = (np.clip(busy, 1, self.cores) - 1) / max(1, self.cores - 1)
        return np.asarray((1 + ALL_CORES * beside) * np.maximum(1.0, busy / self.cores))


def crowded_hosts(graph: Graph) -> tuple[Host, ...]:
    """Hosts where ranks can stand in each other's way: CPU ranks, all of them traced, on a known number of cores."""
    found: dict[str, list[int]] = defaultdict(list)
    for index, rank in enumerate(graph.ranks):
        found[rank.facts.identity.host or ""].append(index)
    hosts = []
    for ranks in found.values():
        shared = [shared_cores(graph.ranks[index].facts) for index in ranks]
        known = [s for s in shared if s is not None and s[0] == len(ranks)]
        if len(known) == len(ranks) > 1:
            hosts.append(Host(tuple(ranks), known[0][1]))
    return tuple(hosts)


def with_crowding(
    graph: Graph,
    scenario: Scenario,
    hosts: Sequence[Host],
    before: tuple[Scenario, Outcome],
    as_peers: frozenset[int] = frozenset(),
) -> Outcome:
    """Simulate the scenario, each piece of work stretched by what runs beside it there and did not `before`.

    `as_peers`: positions of ranks whose work takes in the scenario what it took their peers: stretched as theirs was.
    """
    outcome = simulate(graph, scenario)
    recorded = {host: _Load(host, graph, *before) for host in hosts}
    stretched = scenario
    for _ in range(ROUNDS):
        slowed: dict[int, Scaled] = dict(scenario.host_scale)
        transfer = dict(scenario.transfer_ns)
        for host in hosts:
            load = _Load(host, graph, stretched, outcome)
            for index in host.ranks:
                rank = graph.ranks[index]
                like = [i for i in host.ranks if graph.ranks[i].position not in as_peers] or list(host.ranks)
                was = recorded[host].of_all_work(like) if rank.position in as_peers else recorded[host].of_work(index)
                factor = load.of_work(index) / was
                given = scenario.host_scale.get(rank.position, ())
                slowed[rank.position] = on_top(given, by_level(running(rank.facts), factor))
                moved = scenario.transfer_ns.get(rank.position, rank.ops.transfer_ns)
                factor = load.of_transfers(index) / recorded[host].of_transfers(index)
                transfer[rank.position] = np.round(moved * factor).astype(np.int64)
        stretched = replace(scenario, host_scale=slowed, transfer_ns=transfer)
        outcome = simulate(graph, stretched)
    return outcome


class _Load:
    """How busy the cores of a host are in a simulated run."""

    def __init__(self, host: Host, graph: Graph, scenario: Scenario, outcome: Outcome) -> None:
        self._work: dict[int, Intervals] = {}
        self._moves: dict[int, Intervals] = {}
        at: list[Array] = []
        change: list[Array] = []
        for index in host.ranks:
            rank = graph.ranks[index]
            clock, begun = HostTimeline(rank, scenario), np.asarray(outcome.segments_ns[index], np.int64)
            working, loading = running(rank.facts), _loading(rank.facts)
            self._work[index] = clock.simulated(working[0], begun), clock.simulated(working[1], begun)
            fetching = clock.simulated(loading[0], begun), clock.simulated(loading[1], begun)
            ends = np.asarray(outcome.ends_ns[index], np.int64)[rank.ops.node]
            moved = scenario.transfer_ns.get(rank.position, rank.ops.transfer_ns)
            self._moves[index] = ends - moved, ends
            share = _cpu_share(rank.facts)
            for (start, end), weight in ((self._work[index], 1.0), (self._moves[index], MOVING), (fetching, share)):
                real = end > start
                at += [start[real], end[real]]
                change += [np.full(int(real.sum()), weight), np.full(int(real.sum()), -weight)]
        times, changes = np.concatenate(at), np.concatenate(change)
        order = np.argsort(times, kind="stable")
        self._at = times[order].astype(float)
        pace = 1.0 / host.stretch(np.cumsum(changes[order]))
        self._done = np.concatenate(([0.0], np.cumsum(pace[:-1] * np.diff(self._at)))) if len(order) else pace

    def of_work(self, index: int) -> Array:
        """How much longer each piece of work of a rank takes than alone."""
        return self._mean(self._work[index])

    def of_all_work(self, indices: Sequence[int]) -> float:
        """The same of all work of several ranks together."""
        spans = [self._work[index] for index in indices]
        took = [np.maximum(end - start, 0) for start, end in spans]
        done = sum(float((length / self._mean(s)).sum()) for s, length in zip(spans, took, strict=True))
        return float(sum(length.sum() for length in took)) / done if done > 0 else 1.0

    def of_transfers(self, index: int) -> Array:
        """The same of each of its transfers."""
        return self._mean(self._moves[index])

    def _mean(self, spans: Intervals) -> Array:
        start, end = spans[0].astype(float), spans[1].astype(float)
        if not len(self._at):
            return np.ones(len(start))
        done = np.interp(end, self._at, self._done) - np.interp(start, self._at, self._done)
        return np.where(end > start, (end - start) / np.maximum(done, 1e-9), 1.0)


def _loading(facts: RankFacts) -> Intervals:
    return intervals.union(*facts.spans_of("dataloader").bounds)


def _cpu_share(facts: RankFacts) -> float:
    """Of the training thread's time in the loader, what it was on a core; 0 where that is unknown or workers load."""
    costs = fetch_costs(facts, None)
    return 0.0 if costs is None or costs.source != "inline" else costs.cpu_share or 0.0

"""Replay: evaluate the graph under a scenario, in one pass over the nodes of all ranks.

Cost: contraction is a few numpy passes per rank that the scenario changes; the simulation itself is one Python step per
node, and nodes are only what can move.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
from msgspec import Struct

from ddprof.analyzers.execution.operations import NEVER
from ddprof.analyzers.replay.graph.program import stream_count, without, write_program
from ddprof.analyzers.replay.host_time import HostTimeline, contract, is_changed
from ddprof.analyzers.replay.model import Graph, Node, Program, RankGraph, Scenario
from ddprof.tables import Array

MAX_LEAD = 0.25  # of the span: with less in common the window is too short to cut
CHAIN, POST, FINISH, ANCHOR, BATCH = map(int, (Node.CHAIN, Node.POST, Node.FINISH, Node.ANCHOR, Node.BATCH))

try:
    _native: Any = import_module("ddprof.analyzers.replay._nodes")
except ImportError:  # not built, or on a machine of another kind
    _native = None


class Outcome(Struct, frozen=True):
    """A replayed run, per rank: its span (ns), the host time of each step mark (reference clock), and whether it counts
    (a rank that no other waits for does not).
    """

    spans_ns: tuple[int, ...]
    counted: tuple[bool, ...]
    marks_ns: tuple[tuple[int, ...], ...]
    comm_busy_ns: tuple[int, ...]  # per rank, time in communication, waiting included
    lead_ns: tuple[int, ...]  # per rank, how much earlier its window begins than the last rank's
    sections_ns: tuple[Sequence[int], ...]  # per rank, when each section of its host began (reference clock)
    ends_ns: tuple[Sequence[int], ...]  # per rank, when each of its nodes ended

    @property
    def span_ns(self) -> float:
        """Mean span over the ranks that count; 0 without ranks."""
        return self._mean(self.spans_ns)

    def relative_to(self, baseline: Outcome) -> float:
        """Span over that of the same ranks in the baseline: spans of ranks differ where the window is short.

        Counted from the start of the last rank's window: earlier waits lie outside it, and no change can shorten them.
        """
        common = (
            self.lead_ns if max(self.lead_ns, default=0) < MAX_LEAD * baseline.span_ns else (0,) * len(self.lead_ns)
        )
        after, before = (
            self._mean(tuple(s - c for s, c in zip(o.spans_ns, common, strict=True))) for o in (self, baseline)
        )
        return after / before if before > 0 else 1.0

    def _mean(self, spans_ns: tuple[int, ...]) -> float:
        chosen = [span for span, counts in zip(spans_ns, self.counted, strict=True) if counts]
        return float(np.mean(chosen)) if chosen else 0.0


def simulate(graph: Graph, scenario: Scenario | None = None) -> Outcome:
    """Run the whole job under a scenario (None: as recorded)."""
    scenario = scenario or Scenario()
    clocks = [HostTimeline(rank, scenario) for rank in graph.ranks]
    begins = [rank.begin_ns - rank.offset_ns for rank in graph.ranks]
    sooner = [_sooner(rank, clock, min(begins)) for rank, clock in zip(graph.ranks, clocks, strict=True)]
    state = _State(graph, sooner)
    program = _program(graph, scenario)
    evaluate(program, *_contracted(graph, scenario, program, clocks), state.times)
    entered = [begin - by for begin, by in zip(begins, sooner, strict=True)]
    counted = tuple(rank.position not in scenario.on_time for rank in graph.ranks)
    # Nobody waits for ranks that are on time: not for the beginning of their windows, either.
    latest = max((begin for begin, counts in zip(entered, counted, strict=True) if counts), default=max(entered))
    marks, spans, busy, ends = [], [], [], []
    for at, rank in enumerate(graph.ranks):
        marks.append(_marks(rank, clocks[at], state.sections(at)))
        last_mark = marks[at][-1:] if rank.has_host else ()
        spans.append(max([begins[at], *last_mark, *state.streams(at)]) - begins[at])  # nothing ran on it: no span
        ends.append(state.nodes(at))
        busy.append(state.in_communication_ns(at, ends[at]))
    return Outcome(
        tuple(spans),
        counted if any(counted) else (True,) * len(counted),
        tuple(marks),
        tuple(busy),
        tuple(max(0, latest - begin) for begin in entered),
        tuple(state.sections(at) for at in range(len(graph.ranks))),
        tuple(ends),
    )


def _sooner(rank: RankGraph, clock: HostTimeline, first_ns: int) -> int:
    """Time (ns) by which a rank enters its window sooner than recorded: what its host no longer does since the first
    rank entered its own, `first_ns` (reference clock)."""
    since = np.array([min(first_ns + rank.offset_ns, rank.origin_ns)])
    return int(rank.origin_ns - since[0] + clock.offset(since, np.zeros(1, np.int64))[0])


class _State:
    """The times of the simulation, by rank."""

    def __init__(self, graph: Graph, sooner: Sequence[int]) -> None:
        ranks = graph.ranks
        self._ranks = ranks
        self._node = _ends([len(rank.node_first) for rank in ranks])
        self._section = _ends([len(rank.anchors.kind) + 1 for rank in ranks])
        self._stream = _ends([stream_count(rank) for rank in ranks])
        nodes, sections, streams = self._node[-1], self._section[-1], self._stream[-1]
        counts = sections, nodes, nodes, streams, len(graph.members)
        self.times = Times(*(filled(count, NEVER) for count in counts))
        for at, rank in enumerate(ranks):
            self.times.host[self._section[at]] = rank.origin_ns - rank.offset_ns - sooner[at]
            # Until the first step begins the device is at work that the host had launched before.
            begin, count = rank.begin_ns - rank.offset_ns - sooner[at], self._stream[at + 1] - self._stream[at]
            self.times.stream_end[self._stream[at] : self._stream[at + 1]] = filled(count, begin)

    def sections(self, at: int) -> list[int]:
        """Start of each section of a rank's host."""
        return self.times.host[self._section[at] : self._section[at + 1]].tolist()

    def nodes(self, at: int) -> array[int]:
        """End of each node of a rank."""
        return array("q", self.times.ends[self._node[at] : self._node[at + 1]].tobytes())

    def streams(self, at: int) -> list[int]:
        """End of each stream of a rank."""
        return self.times.stream_end[self._stream[at] : self._stream[at + 1]].tolist()

    def in_communication_ns(self, at: int, ends: array[int]) -> int:
        """Time of a rank in communication, waiting included; `ends`: of its nodes."""
        rank, starts = self._ranks[at], self.times.starts[self._node[at] : self._node[at + 1]]
        is_comm = rank.ops.is_comm[rank.node_first]
        began, ended = (np.frombuffer(column, np.int64)[is_comm] for column in (starts, ends))
        return int((ended - began).sum())


def _ends(counts: Sequence[int]) -> list[int]:
    """Offsets of consecutive parts with these numbers of elements, and the end of the last."""
    return [0, *np.cumsum(counts).tolist()] if counts else [0]


def _program(graph: Graph, scenario: Scenario) -> Program:
    """The graph's program with the scenario's dissolved instances."""
    program = graph.program
    if scenario.dissolved and program.is_broken:
        program = write_program(graph.ranks, graph.members, scenario.dissolved)
    kind, links = program.kind, program.links
    if scenario.dissolved:
        links = without(links, scenario.dissolved)
    if scenario.on_time:  # no rank waits for these ranks: they arrive, and it does not count
        early = np.array([rank.position in scenario.on_time for rank in graph.ranks], bool)[program.rank].tolist()
        links = [
            () if is_on_time and node == Node.POST else met
            for met, node, is_on_time in zip(links, kind, early, strict=True)
        ]
    if any(scenario.freed.values()):
        kind = _freed(graph, program, scenario)
    return replace(program, kind=kind, links=links)


def _freed(graph: Graph, program: Program, scenario: Scenario) -> bytes:
    """Kinds of the nodes when some hosts wait for nothing."""
    begin = _ends([len(rank.anchors.kind) + 1 for rank in graph.ranks])
    is_freed = np.zeros(begin[-1], bool)
    for at, rank in enumerate(graph.ranks):
        is_freed[[begin[at] + anchor for anchor in scenario.freed.get(rank.position, ())]] = True
    kind, section = np.frombuffer(bytes(program.kind), np.uint8), np.asarray(program.section)
    return np.where(is_freed[section] & (kind >= Node.ANCHOR), np.uint8(Node.FREE), kind).tobytes()


def _contracted(
    graph: Graph, scenario: Scenario, program: Program, clocks: Sequence[HostTimeline]
) -> tuple[Array, Array, Array]:
    """Values of each node of the program: `queue`, `take` and `host` of `Contracted`."""
    ranks = [
        contract(rank, scenario, clock) if is_changed(rank, scenario) else recorded
        for rank, recorded, clock in zip(graph.ranks, graph.recorded, clocks, strict=True)
    ]
    queue, take, host = (
        np.concatenate(parts)[program.at].astype(np.int64, copy=False)
        for parts in ([r.queue for r in ranks], [r.take for r in ranks], [r.host for r in ranks])
    )
    return queue, take, host


def _marks(rank: RankGraph, clock: HostTimeline, begun: Sequence[int]) -> tuple[int, ...]:
    """Host time of each step mark."""
    places = zip(*clock.locate(rank.marks_ns), strict=True)
    return tuple(begun[section] + offset for section, offset in places)


class Times(Struct, frozen=True):
    """Times of a simulation, reference clock, ns, as int64 over all ranks, numbered as in the program."""

    host: memoryview  # beginning of each section
    ends: memoryview  # of each node
    starts: memoryview  # of each communication, by its node
    stream_end: memoryview
    latest: memoryview  # arrival at each instance


def filled(count: int, ns: int) -> memoryview:
    """So many times, all of them `ns`."""
    return memoryview(bytearray(np.full(count, ns, np.int64).tobytes())).cast("q")


def evaluate(program: Program, queue: Array, take: Array, beyond: Array, times: Times) -> None:
    """Evaluate every node once; `queue`, `take`, `beyond`: `Contracted`, by node of the program."""
    made = times.host, times.ends, times.starts, times.stream_end, times.latest
    contracted = queue.tobytes(), take.tobytes(), beyond.tobytes()
    if _native is None or os.environ.get("DDPROF_NATIVE", "1") == "0":
        _evaluate(program, contracted, times)
        return
    numbers = (program.node, program.track, program.dep, program.dep_lag, program.section)
    columns = [np.asarray(column).tobytes() for column in numbers]
    _native.run(bytes(program.kind), *columns, program.links, *contracted, *(column.obj for column in made))


def _evaluate(program: Program, contracted: tuple[bytes, ...], times: Times) -> None:
    host, ends, starts, stream_end, latest = times.host, times.ends, times.starts, times.stream_end, times.latest
    nodes = zip(
        *(program.kind, program.node, program.track, program.dep, program.dep_lag, program.section, program.links),
        *(memoryview(column).cast("q") for column in contracted),
        strict=True,
    )
    for kind, node, track, dep, dep_lag, section, links, queue, take, beyond in nodes:
        if kind == CHAIN:
            end = stream_end[track] + queue
            if dep >= 0 and ends[dep] + dep_lag > end:
                end = ends[dep] + dep_lag
            end += take
            launched = host[section] + beyond
            ends[node] = end = launched if launched > end else end
            if end > stream_end[track]:
                stream_end[track] = end
        elif kind == POST:
            start = stream_end[track] + queue
            if dep >= 0 and ends[dep] + dep_lag > start:
                start = ends[dep] + dep_lag
            launched = host[section] + beyond
            starts[node] = start = launched if launched > start else start
            for instance in links:
                if start > latest[instance]:
                    latest[instance] = start
        elif kind == FINISH:
            end = starts[node]
            for instance in links:
                if latest[instance] > end:
                    end = latest[instance]
            ends[node] = end = end + take
            if end > stream_end[track]:
                stream_end[track] = end
        else:
            call = host[section] + take
            if kind == ANCHOR:
                released = ends[dep] if dep >= 0 else call
                call = (released if released > call else call) + beyond
            elif kind == BATCH and dep_lag > call:
                call = dep_lag
            host[section + 1] = call


# Baselines of gains: replays with a measured step, of the profiled or the unprofiled run.

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

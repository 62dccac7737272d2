"""The reduced dependency graph: only what can move is a node.

Per rank there is one host timeline, broken where the host blocked (anchors), and one queue per device stream, broken
where an operation depends on another stream, is depended on, or communicates. Everything between is a chain that
contracts to two numbers, max-plus: a chain ends at max(previous end + W, host + B). All times int64 ns on the rank's
own clock until simulated.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.execution.choose import Execution
from ddprof.analyzers.execution.operations import Operations
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Change
from ddprof.tables import Array

DEFAULT_PREFETCH = 2  # batches per worker of a DataLoader: torch's own


Met = tuple[int, ...]  # instances that a node takes part in


class Anchor(enum.IntEnum):
    """Reason why the host blocked."""

    SYNC = 0  # waits for a device operation
    LOADER = 1  # waits for a batch that workers prepare at their own rate
    PEERS = 2  # waits for other ranks


@dataclass(frozen=True)
class Ops(Operations):
    """Operations of one rank, with the dependencies of each."""

    dep: Array  # index of the operation on another stream it waited for, -1
    launch_lag_ns: Array  # least time from launch to start
    queue_lag_ns: Array  # least time from the previous end on the stream to the start
    dep_lag_ns: Array  # least time from the dependency's end to the start
    transfer_ns: Array  # of a communication: from the last arrival to the end
    section: Array  # host section of the launch
    node: Array  # chain (or communication) it belongs to


class Anchors(Struct, frozen=True):
    """Points at which the host blocked, in order.

    Host section k + 1 begins when anchor k returns, section 0 at the first step mark.
    """

    kind: Array
    start_ns: Array
    end_ns: Array
    target: Array  # index into Ops of what a SYNC or PEERS waited for, -1
    tail_ns: Array  # from the release (or the call, if it did not block) to the return


class Node(enum.IntEnum):
    """Kinds of node. POST and FINISH are the two ends of a communication."""

    CHAIN = 0
    POST = 1
    FINISH = 2
    ANCHOR = 3  # a host that waits for an operation
    BATCH = 4  # a host that waits for a batch
    FREE = 5  # a host that waits for nothing in this scenario


class Order(Struct, frozen=True):
    """The nodes of one rank by the time they were done: every dependency precedes its dependants."""

    kind: Array  # Node
    index: Array  # of a chain or communication, or of an anchor


class Contracted(Struct, frozen=True):
    """A scenario's effect on one rank's nodes: values per node, per node again, and per anchor; ns.

    The first part is for chains, the second for communications, the third for hosts that block.
    """

    queue: Array  # least time from the previous end on the stream; 0 for hosts
    take: Array  # total of a chain, transfer of a communication, host time from the section's beginning to the call
    host: Array  # host time from the section's beginning to a chain's end or a communication's start; after a release


@dataclass(frozen=True)
class Program:
    """All nodes of all ranks in an order in which each follows its dependencies. Sequences have one element per node.

    Nodes, streams and host sections are numbered through over all ranks, in their order.
    """

    kind: Sequence[int]
    node: Sequence[int]
    track: Sequence[int]
    dep: Sequence[int]  # node it waits for (-1: none); of a host: what it blocked for
    dep_lag: Sequence[int]  # ns; of a BATCH: when the batch was ready, reference clock
    section: Sequence[int]
    links: Sequence[Met]  # of a communication that rendezvous
    at: Array  # row of the node's values in the `Contracted` of all ranks, one after another
    rank: Array  # index of its rank
    is_broken: bool  # members of some instances never arrive: who goes on then depends on the instances


@dataclass(frozen=True)
class RankGraph:
    """One rank, contracted."""

    facts: RankFacts
    execution: Execution
    position: int
    origin_ns: int  # first step mark of the host
    begin_ns: int  # start of the first step: of a device that its host is ahead of, later than the mark
    offset_ns: int  # own clock - reference clock
    ops: Ops
    anchors: Anchors
    marks_ns: Array  # step marks after the first, host times
    node_first: Array  # first operation of each chain, index into Ops
    node_last: Array
    links: Sequence[Met]  # of each node
    order: Order
    has_host: bool  # False: a timeline without host calls, where only the device says how long a step took

    @cached_property
    def beside(self) -> Array:
        """Share of each operation that ran beside communication; 0 for communication itself."""
        ops = self.ops
        comm = intervals.union(*self.facts.comms.bounds)
        share = intervals.overlap(comm, ops.start_ns, ops.end_ns) / np.maximum(ops.dur_ns, 1)
        return np.where(ops.is_comm, 0.0, share)


@dataclass(frozen=True, eq=False)
class Graph:
    """The job: rank graphs and how many members each instance must gather."""

    ranks: tuple[RankGraph, ...]
    members: Array  # per instance
    measured_ns: float  # mean over ranks of the simulated span, as measured
    program: Program
    recorded: tuple[Contracted, ...]  # per rank, of the run as it was recorded
    interference: float = 0.0  # how much longer a kernel (or operator) takes beside communication, relative to alone


@dataclass(frozen=True)
class Scenario:
    """Differences of a replay from the recorded run; empty for the recorded run.

    `dur_ns[p]`: new duration per operation of rank p; `transfer_ns[p]`: new transfer per operation of rank p (used
    where it communicates); `host_scale[p]`: (intervals, factor) pairs by which host time inside the intervals is
    multiplied; `freed[p]`: anchors of rank p that return at once; `queue_ns[p]`: new gap per operation of rank p after
    the one before it on its stream; `dissolved`: instances in which no rank waits.
    """

    dur_ns: Mapping[int, Array] = field(default_factory=dict)
    transfer_ns: Mapping[int, Array] = field(default_factory=dict)
    host_scale: Mapping[int, tuple[tuple[tuple[Array, Array], float], ...]] = field(default_factory=dict)
    freed: Mapping[int, frozenset[int]] = field(default_factory=dict)
    queue_ns: Mapping[int, Array] = field(default_factory=dict)
    on_time: frozenset[int] = frozenset()  # ranks nobody waits for
    dissolved: frozenset[int] = frozenset()

    def __add__(self, other: Scenario) -> Scenario:
        """Both changes at once; where both give a duration for the same operation, the shorter holds."""
        return Scenario(
            _merge(self.dur_ns, other.dur_ns),
            _merge(self.transfer_ns, other.transfer_ns),
            {
                p: self.host_scale.get(p, ()) + other.host_scale.get(p, ())
                for p in {*self.host_scale, *other.host_scale}
            },
            {p: self.freed.get(p, frozenset()) | other.freed.get(p, frozenset()) for p in {*self.freed, *other.freed}},
            _merge(self.queue_ns, other.queue_ns),
            self.on_time | other.on_time,
            self.dissolved | other.dissolved,
        )


def _merge(a: Mapping[int, Array], b: Mapping[int, Array]) -> dict[int, Array]:
    merged = {**a, **b}
    for position in set(a) & set(b):
        merged[position] = np.minimum(a[position], b[position])
    return merged


# Ranks and operations that a change applies to.


def chosen(change: Change, graph: Graph, measures: Measures) -> list[tuple[RankGraph, float]]:
    """Graphs of the ranks that the change names (all, where it names none), each with its value (1.0 without one)."""
    wanted = dict(zip(change.ranks, change.values or (1.0,) * len(change.ranks), strict=False))
    graphs = []
    for rank in graph.ranks:
        number = measures.job.rank_ids[rank.position]
        if not change.ranks or number in wanted:
            graphs.append((rank, wanted.get(number, change.values[0] if change.values else 1.0)))
    return graphs


def scaled(times_ns: Array, is_changed: Array, share: float) -> Array:
    """The times (ns, int64), of which the changed ones take `share` of what they took; shape as `times_ns`."""
    return np.where(is_changed, np.round(times_ns * share), times_ns).astype(np.int64)

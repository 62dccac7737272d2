"""Sharded parameters in other units, or gathered ahead: new transfers of the recorded gathers and reductions.

Both changes give the units of each pass another schedule. What it leaves exposed is put into the recorded calls on top
of what compute hides of them now, and scaled by how far the same schedule misses the recorded run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.unit_latency import unit_latency
from ddprof.analyzers.job.traffic.units import Units, first_of_block, typical, unit_passes
from ddprof.analyzers.replay.changes.communication.retiming import Retimed
from ddprof.analyzers.replay.model import Graph, RankGraph
from ddprof.findings import Change
from ddprof.tables import Array


def resharded(change: Change, graph: Graph, measures: Measures, others: Sequence[Change]) -> dict[int, Retimed]:
    """`values[0]` units of a forward pass as one (`merge_units`), gathers one unit ahead (`prefetch_gathers`), no
    gathers in backward passes (`keep_parameters`): all that the changes of the replay say about units at once.
    """
    kinds = {other.kind for other in (change, *others)}
    period = max((int(other.values[0]) for other in (change, *others) if other.kind == "merge_units"), default=1)
    latency = unit_latency(measures.comm)
    latency_ns = latency.ns if latency is not None else 0.0
    made: dict[int, list[tuple[Array, Array]]] = {}
    for rank in graph.ranks:
        passes = unit_passes(measures.job, rank.position)
        forward = typical(passes, is_backward=False)
        if forward is None:
            continue
        first = first_of_block(forward, period)
        made[rank.position] = [
            _new_transfers(units, _blocks(units, period, first), latency_ns, kinds) for units in passes
        ]
    alike = _averaged(made)
    return {rank.position: _of_operations(rank, alike[rank.position]) for rank in graph.ranks if rank.position in alike}


def _averaged(made: Mapping[int, list[tuple[Array, Array]]]) -> Mapping[int, list[tuple[Array, Array]]]:
    """The mean over ranks where all have the same passes: a transfer takes all its members equally long."""
    lengths = {tuple(len(rows) for rows, _ in passes) for passes in made.values()}
    if len(lengths) != 1:
        return made
    means = [np.mean(times, axis=0) for times in zip(*([t for _, t in p] for p in made.values()), strict=True)]
    return {
        position: [(rows, mean) for (rows, _), mean in zip(passes, means, strict=True)]
        for position, passes in made.items()
    }


def _blocks(units: Units, period: int, first: int) -> Array:
    """The block of each unit, (units,): blocks of `period` units from the unit `first` on, backwards in a backward
    pass; the units before are blocks of their own.
    """
    number = np.arange(len(units.gathers))
    if units.is_backward:
        number = number[::-1]
    block = np.where(number < first, number, first + (number - first) // period)
    return np.asarray(block.max(initial=0) - block if units.is_backward else block)


def _new_transfers(units: Units, block: Array, latency_ns: float, kinds: Set[str]) -> tuple[Array, Array]:
    """Rows of facts.comms and their new transfers, ns, of one pass."""
    now, is_ahead = _recorded(units)
    is_kept = units.is_backward and "keep_parameters" in kinds
    merged = scheduled(
        _merged(units.gather_ns * (not is_kept), block, latency_ns),
        np.bincount(block, units.compute_ns),
        _merged(units.reduce_ns, block, latency_ns),
        is_ahead or "prefetch_gathers" in kinds,
    )
    scale = units.exposed_ns / now.exposed_ns if now.exposed_ns else 1.0
    # The first call that gathers something of the block, if there is one.
    first = np.unique(block + 0.5 * (units.gathers < 0), return_index=True)[1]
    first = first[np.unique(block[first], return_index=True)[1]]
    # A block is gathered by its first call and reduced by its last, the others are not made. What compute hides of a
    # call now it goes on hiding.
    last = len(block) - 1 - np.unique(block[::-1], return_index=True)[1]
    gathers, reductions = np.zeros((2, len(block)))
    gathers[first] = 0.0 if is_kept else (units.gather_ns - units.exposed_gather_ns)[first]
    gathers[first] += scale * merged.stalls_ns
    reductions[last] = (units.reduce_ns - units.exposed_reduce_ns)[last]
    reductions[-1] += scale * merged.tail_ns
    rows, times = np.append(units.gathers, units.reductions), np.append(gathers, reductions)
    return rows[rows >= 0], times[rows >= 0]


def _recorded(units: Units) -> tuple[_UnitSchedule, bool]:
    """The schedule of the units as they are, and whether gathers are ahead in it: what comes closest to the record."""
    both = [(scheduled(units.gather_ns, units.compute_ns, units.reduce_ns, ahead), ahead) for ahead in (True, False)]
    return min(both, key=lambda pair: abs(pair[0].exposed_ns - units.exposed_ns))


def _merged(times_ns: Array, block: Array, latency_ns: float) -> Array:
    """Transfer of each block: those of its units, less a latency for every call that is not made."""
    moved = np.bincount(block, np.maximum(times_ns - latency_ns, 0.0))
    one = np.bincount(block, np.minimum(times_ns, latency_ns)) / np.maximum(np.bincount(block, times_ns > 0), 1)
    return np.asarray(moved + one)


def _of_operations(rank: RankGraph, made: Sequence[tuple[Array, Array]]) -> Retimed:
    """Transfers by row of facts.comms as transfers by operation of the replay."""
    comms = np.concatenate([rows for rows, _ in made])
    times = np.concatenate([transfer for _, transfer in made])
    order = np.argsort(comms)
    at = np.searchsorted(comms[order], rank.ops.comm)
    at = np.minimum(at, len(comms) - 1)
    rows = np.flatnonzero(rank.ops.is_comm & (comms[order][at] == rank.ops.comm))
    return Retimed(rows, np.round(np.maximum(times[order][at[rows]], 0)).astype(np.int64))


@dataclass(frozen=True)
class _UnitSchedule:
    """Exposed time of each unit's gather, and of the reductions that nothing follows; ns."""

    stalls_ns: Array  # (units,), that compute waits before each unit
    tail_ns: float  # communication after the last compute

    @property
    def exposed_ns(self) -> float:
        """All of it."""
        return float(self.stalls_ns.sum()) + self.tail_ns


def scheduled(gather_ns: Array, compute_ns: Array, reduce_ns: Array, is_ahead: bool) -> _UnitSchedule:
    """One pass; each array (units,), 0 where a unit has none. `is_ahead`: gathers are launched one unit early.

    Units compute one after another; their communication shares one stream, in the order of launch
    (torch.distributed.fsdp: compute of a unit starts when the unit before has ended and its own parameters are there; a
    gather that is launched ahead starts when its stream is free and the compute before the unit before has ended; a
    unit that is not gathered itself, such as the last of the forward pass at the begin of the backward pass, launches
    none ahead).
    """
    count = len(compute_ns)
    gathers, computes, reductions = (column.tolist() for column in (gather_ns, compute_ns, reduce_ns))
    comm = compute = 0.0  # when the stream of communication, and compute, is free
    ready = [0.0 if us > 0 else -1.0 for us in gathers]  # 0: to be gathered; -1: is there already
    stalls = np.zeros(count)
    for unit in range(count):
        needed = (unit, unit + 1) if is_ahead and gathers[unit] > 0 else (unit,)
        for other in needed:
            if other < count and ready[other] == 0:
                ready[other] = comm = max(comm, compute) + gathers[other]
        begin = max(compute, ready[unit])
        stalls[unit] = begin - compute
        compute = begin + computes[unit]
        if reductions[unit] > 0:
            comm = max(comm, compute) + reductions[unit]
    return _UnitSchedule(stalls, max(0.0, comm - compute))

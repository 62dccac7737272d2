"""Sharded parameters in other units, or gathered ahead: new transfers of the recorded gathers and reductions.

Both changes reschedule the units of each pass. The exposed rest is added to the recorded calls' hidden part, and scaled
by the same schedule's error on the recorded run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np
from msgspec import Struct

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.units import Units, first_of_block, typical, unit_latency, unit_passes
from ddprof.analyzers.replay.changes.communication.retiming import Retimed
from ddprof.analyzers.replay.model import Graph, RankGraph
from ddprof.findings import Change
from ddprof.tables import Array


def resharded(change: Change, graph: Graph, measures: Measures, others: Sequence[Change]) -> dict[int, Retimed]:
    """New transfers of sharded units for all changes of units in the replay at once.

    `merge_units`: `values[0]` units of a forward pass as one; `prefetch_gathers`: one unit ahead; `keep_parameters`: no
    gathers in backward passes.
    """
    kinds = {other.kind for other in (change, *others)}
    period = max((int(other.values[0]) for other in (change, *others) if other.kind == "merge_units"), default=1)
    latency = unit_latency(measures.comm)
    latency_ns = latency.ns if latency is not None else 0.0
    passes: dict[int, list[Units]] = {}
    first: dict[int, int] = {}
    for rank in graph.ranks:
        of_rank = unit_passes(measures.job, rank.position)
        forward = typical(of_rank, is_backward=False)
        if forward is not None:
            passes[rank.position], first[rank.position] = of_rank, first_of_block(forward, period)
    alike = _averaged(_new_transfers(passes, period, first, latency_ns, kinds))
    return {rank.position: _of_operations(rank, alike[rank.position]) for rank in graph.ranks if rank.position in alike}


def _averaged(made: Mapping[int, list[tuple[Array, Array]]]) -> Mapping[int, list[tuple[Array, Array]]]:
    """The mean over ranks where all have the same passes: a transfer lasts equally long on all its members."""
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


def _new_transfers(
    passes: Mapping[int, Sequence[Units]], period: int, first: Mapping[int, int], latency_ns: float, kinds: Set[str]
) -> dict[int, list[tuple[Array, Array]]]:
    """Rows of facts.comms and their new transfers, ns, for each pass of each rank; equal passes are computed at once.
    `first`: the unit with which blocks begin, by rank.
    """
    alike: dict[tuple[int, bool, bytes, bytes], list[tuple[int, int]]] = {}
    for position, of_rank in passes.items():
        for number, units in enumerate(of_rank):
            made = (units.gathers >= 0).tobytes(), (units.reductions >= 0).tobytes()
            alike.setdefault((first[position], units.is_backward, *made), []).append((position, number))
    transfers: dict[tuple[int, int], tuple[Array, Array]] = {}
    for (begin, *_), places in alike.items():
        equal = [passes[position][number] for position, number in places]
        block = _blocks(equal[0], period, begin)
        columns = [np.stack(column) for column in zip(*(_times(units) for units in equal), strict=True)]
        times = np.concatenate(_rescheduled(equal[0], block, columns, latency_ns, kinds), axis=1)
        for place, units, new in zip(places, equal, times, strict=True):
            rows = np.append(units.gathers, units.reductions)
            transfers[place] = rows[rows >= 0], new[rows >= 0]
    return {
        position: [transfers[position, number] for number in range(len(of_rank))]
        for position, of_rank in passes.items()
    }


def _times(units: Units) -> tuple[Array, Array, Array, Array, Array]:
    return units.gather_ns, units.compute_ns, units.reduce_ns, units.exposed_gather_ns, units.exposed_reduce_ns


def _rescheduled(
    like: Units, block: Array, times_ns: Sequence[Array], latency_ns: float, kinds: Set[str]
) -> tuple[Array, Array]:
    """New transfers of gathers and reductions, (passes, units), of passes that are `like` one of them. `times_ns`: of
    gathers, compute, reductions, and exposed of gathers and reductions.
    """
    gather, compute, reduce, exposed_gather, exposed_reduce = times_ns
    exposed = exposed_gather.sum(axis=1) + exposed_reduce.sum(axis=1)
    ahead, after = (scheduled(gather, compute, reduce, np.full(len(gather), is_ahead)) for is_ahead in (True, False))
    # Whether gathers are ahead in the record: the schedule that comes closest to it.
    is_ahead = np.abs(ahead.exposed_ns - exposed) <= np.abs(after.exposed_ns - exposed)
    now = np.where(is_ahead, ahead.exposed_ns, after.exposed_ns)
    is_kept = like.is_backward and "keep_parameters" in kinds
    merged = scheduled(
        _merged(gather * (not is_kept), block, latency_ns),
        _by_block(compute, block),
        _merged(reduce, block, latency_ns),
        is_ahead | ("prefetch_gathers" in kinds),
    )
    scale = np.where(now != 0, exposed / np.where(now != 0, now, 1.0), 1.0)
    # The first call that gathers something of the block, if there is one.
    first = np.unique(block + 0.5 * (like.gathers < 0), return_index=True)[1]
    first = first[np.unique(block[first], return_index=True)[1]]
    # A block is gathered by its first call and reduced by its last, the others are not made. What compute hides of a
    # call now it goes on hiding.
    last = len(block) - 1 - np.unique(block[::-1], return_index=True)[1]
    gathers, reductions = np.zeros((2, *gather.shape))
    gathers[:, first] = 0.0 if is_kept else (gather - exposed_gather)[:, first]
    gathers[:, first] += scale[:, None] * merged.stalls_ns
    reductions[:, last] = (reduce - exposed_reduce)[:, last]
    reductions[:, -1] += scale * merged.tail_ns
    return gathers, reductions


def _by_block(values: Array, block: Array) -> Array:
    """Sums over the units of each block, (passes, blocks)."""
    total = np.zeros((len(values), int(block.max(initial=-1)) + 1))
    for unit, number in enumerate(block.tolist()):
        total[:, number] += values[:, unit]
    return total


def _merged(times_ns: Array, block: Array, latency_ns: float) -> Array:
    """Transfer of each block: the sum over its units, less one latency for every call that is dropped."""
    moved = _by_block(np.maximum(times_ns - latency_ns, 0.0), block)
    return moved + _by_block(np.minimum(times_ns, latency_ns), block) / np.maximum(_by_block(times_ns > 0, block), 1)


def _of_operations(rank: RankGraph, made: Sequence[tuple[Array, Array]]) -> Retimed:
    """Transfers by row of facts.comms as transfers by operation of the replay."""
    comms = np.concatenate([rows for rows, _ in made])
    times = np.concatenate([transfer for _, transfer in made])
    order = np.argsort(comms)
    at = np.searchsorted(comms[order], rank.ops.comm)
    at = np.minimum(at, len(comms) - 1)
    rows = np.flatnonzero(rank.ops.is_comm & (comms[order][at] == rank.ops.comm))
    return rows, np.round(np.maximum(times[order][at[rows]], 0)).astype(np.int64)


class _UnitSchedule(Struct, frozen=True):
    """Exposed time of each unit's gather, and of the reductions that nothing follows; ns, for one pass or many."""

    stalls_ns: Array  # (..., units), that compute waits before each unit
    tail_ns: Array  # (...), communication after the last compute

    @property
    def exposed_ns(self) -> Array:
        """Total exposed time, ns, shape (...)."""
        return np.asarray(self.stalls_ns.sum(axis=-1) + self.tail_ns)


def scheduled(gather_ns: Array, compute_ns: Array, reduce_ns: Array, is_ahead: Array | bool) -> _UnitSchedule:
    """One pass, or many at once; each array (..., units), 0 where a unit has none. `is_ahead`, (...): gathers are
    launched one unit early.

    Units compute one after another; their communication shares one stream, in the order of launch
    (torch.distributed.fsdp: compute of a unit starts when the unit before has ended and its own parameters are there; a
    gather that is launched ahead starts when its stream is free and the compute before the unit before has ended; a
    unit that is not gathered itself, such as the last of the forward pass at the begin of the backward pass, launches
    none ahead).
    """
    *passes, count = compute_ns.shape
    comm, compute = np.zeros((2, *passes))  # when the stream of communication, and compute, is free
    ready = np.where(gather_ns > 0, 0.0, -1.0)  # 0: to be gathered; -1: is there already
    stalls = np.zeros(compute_ns.shape)
    for unit in range(count):
        for other in range(unit, min(unit + 2, count)):
            asked = (ready[..., other] == 0) & ((other == unit) | (is_ahead & (gather_ns[..., unit] > 0)))
            comm = np.where(asked, np.maximum(comm, compute) + gather_ns[..., other], comm)
            ready[..., other] = np.where(asked, comm, ready[..., other])
        begin = np.maximum(compute, ready[..., unit])
        stalls[..., unit] = begin - compute
        compute = begin + compute_ns[..., unit]
        comm = np.where(reduce_ns[..., unit] > 0, np.maximum(comm, compute) + reduce_ns[..., unit], comm)
    return _UnitSchedule(stalls, np.maximum(0.0, comm - compute))

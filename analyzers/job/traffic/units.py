"""Units of sharded parameters: the gathers, compute and reductions of each pass, in the order of launch.

A unit (what FSDP wraps as one) is gathered before the compute that needs it; in the backward pass its gradients are
scattered after that. Which compute a gather is for follows from the order in which the host launches: gathers that it
launches before any compute are ahead by so many units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from statistics import mode

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.early import is_early
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.facts.work import compute_work, issued_ns
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.cost import fit_cost
from ddprof.analyzers.job.traffic.statistics import CommStats, with_known_transfer
from ddprof.analyzers.job.waiting.waits import members_of, ready_by_comm
from ddprof.derived_once import remembered
from ddprof.tables import NULL, Array

ROLE = "fsdp_shard"
NO_COMPUTE = 0.02  # of the largest compute between two gathers: less (copies of parameters) is none
SAME_SHARE = 0.9  # of the units, whose successor of k later must be alike for blocks of k units
FEWEST_UNITS = 4  # of a pass: with fewer there is nothing to repeat
UNKNOWN = -1  # what a unit launches: nothing marks the end of the last one
REMEMBERED = 2**8  # passes by the shapes of their units: those of one job are mostly the same


@dataclass(frozen=True)
class Units:
    """One pass of one step on one rank. Rows of facts.comms; unit by unit, times ns.

    `gathers`, `reductions`: -1 where a unit has none (kept after forward; the forward pass reduces nothing).
    """

    is_backward: bool
    gathers: Array  # (units,)
    reductions: Array  # (units,)
    gather_ns: Array  # (units,), transfer
    reduce_ns: Array  # (units,), transfer
    compute_ns: Array  # (units,), that waits for the unit's parameters
    exposed_gather_ns: Array  # (units,), without waiting for late ranks
    exposed_reduce_ns: Array  # (units,), likewise
    unhidden_ns: Array  # (units,), compute beside no such communication since the gather before: it hid nothing
    queued_ns: Array  # (units,), compute that the device still had to do when the gather was launched
    shape: Array  # (units,), equal numbers for units of equal size that launch the same operators; UNKNOWN

    @cached_property
    def prefetchable_ns(self) -> float:
        """Exposed time of gathers that compute of the unit before could have hidden.

        The first gather of a pass is left out: no unit before it is gathered that could launch it early.
        """
        hidden = np.minimum(self.exposed_gather_ns, self.unhidden_ns)
        return float(hidden[np.flatnonzero(self.gathers >= 0)[1:]].sum())


@remembered
def unit_passes(job: JobFacts, position: int) -> list[Units]:
    """The passes of a rank in its steps, in order; [] where its parameters are not sharded."""
    facts = job.ranks[position]
    rows = _sharded_rows(job, position)
    if not len(rows):
        return []
    has_launch = facts.comms["launch_ns"][rows] != NULL
    if has_launch.any():
        rows = rows[has_launch]  # of work launched before the recording nothing tells for which compute it is
    issued = issued_ns(facts.comms)[rows]
    order = np.argsort(issued, kind="stable")
    rows, issued = rows[order], issued[order]
    edges = np.append(facts.steps["mark_ns"], facts.steps["mark_end_ns"][-1])
    step = np.searchsorted(edges, issued, side="right") - 1
    timeline = _Timeline.of(job, position, rows)
    is_gather, thread = facts.comms["op"][rows] == OP_CODE["all_gather"], _threads(facts, rows)
    bounds = np.searchsorted(step, np.arange(len(facts.steps) + 1)).tolist()
    passes = []
    for number, (first, last) in enumerate(pairwise(bounds)):
        before, in_step = -1, slice(first, last)
        for is_backward, part in _split(rows[in_step], is_gather[in_step], thread[in_step]):
            passes.append(timeline.one_pass(is_backward, part, before, int(edges[number]), int(edges[number + 1])))
            before = int(part[-1])
    return timeline.units([one for one in passes if one.count])


def units_per_block(units: Units) -> int:
    """Number of units that each repeated block of the model is wrapped in; 1 where it is one, or nothing repeats."""
    return _period(units.shape.tobytes())


@lru_cache(maxsize=REMEMBERED)
def _period(shapes: bytes) -> int:
    shape = np.frombuffer(shapes, np.int64)
    if len(shape) < FEWEST_UNITS:
        return 1
    for period in range(1, len(shape) // 2 + 1):
        alike = _alike(shape, period)
        # The first unit (embeddings) may be one of its own.
        if len(alike) > period and alike[1:].mean() >= SAME_SHARE:
            return period
    return 1


def first_of_block(units: Units, period: int) -> int:
    """Index of the unit with which the first block of `period` units begins."""
    alike = np.flatnonzero(_alike(units.shape, period))
    return int(alike[0]) if len(alike) else 0


def _alike(shape: Array, period: int) -> Array:
    """Mask of units equal to the one `period` later, as far as both are known."""
    rows = np.flatnonzero(shape[period:] != UNKNOWN)
    return np.asarray(shape[period:][rows] == shape[:-period][rows])


def _like_before(compute: Array, shape: Array, counts: Sequence[int]) -> Array:
    """Compute of the units of passes of so many each. Of those whose end nothing marks, as that of the same units of
    the block before; the last one, which the head follows, has the rest.
    """
    result, end = compute.copy(), np.cumsum(counts)
    unknown = np.flatnonzero(shape == UNKNOWN)
    for number in np.unique(np.searchsorted(end, unknown, side="right")).tolist():
        of_pass = slice(int(end[number]) - counts[number], int(end[number]))
        result[of_pass] = _with_ends(compute[of_pass], shape[of_pass])
    return result


def _with_ends(compute: Array, shape: Array) -> Array:
    unknown = np.flatnonzero(shape == UNKNOWN)
    if len(unknown) + (period := _period(shape.tobytes())) > len(shape):
        return compute
    first = len(shape) - len(unknown)
    earlier = first - period + (unknown - first) % period
    result = compute.copy()
    result[unknown] = compute[earlier]
    result[-1] += compute[unknown].sum() - result[unknown].sum()
    return result if result[-1] > 0 else compute


def _sharded_rows(job: JobFacts, position: int) -> Array:
    rows = members_of(job.members, position)
    rows = rows[with_known_transfer(job)[job.members["instance"][rows]]]
    instance = job.members["instance"][rows]
    sharded = job.groups["role"][job.instances["group"][instance]] == ROLE
    sharded &= np.isin(job.instances["op"][instance], [OP_CODE["all_gather"], OP_CODE["reduce_scatter"]])
    return np.unique(job.members["comm"][rows][sharded])


def _split(rows: Array, is_gather: Array, thread: Array) -> list[tuple[bool, Array]]:
    """The gathers and reductions of a step, in order of launch, as passes: (is backward, rows).

    A backward pass is launched by the autograd engine's thread, as its reductions are. Where launches are unknown, or
    one thread launches all (a CPU rank), each pass gathers a unit once: the forward pass has as many gathers as there
    are reductions.
    """
    if not len(rows):
        return []
    back = _by_thread(is_gather, thread)
    if back is None:
        back = ~is_gather | (np.cumsum(is_gather) > int((~is_gather).sum()))
        back = np.logical_or.accumulate(back)
    cuts = [0, *(np.flatnonzero(back[1:] != back[:-1]) + 1).tolist(), len(rows)]
    return [(bool(back[begin]), rows[begin:end]) for begin, end in pairwise(cuts)]


def _threads(facts: RankFacts, rows: Array) -> Array:
    """Thread that launched each of some communications; NULL where that is not known."""
    op = facts.comms["device_op"][rows]
    return np.append(facts.device_ops["thread"], NULL)[np.where(op == NULL, -1, op)]


def _by_thread(is_gather: Array, thread: Array) -> Array | None:
    """Communications that were launched by the thread that launches the reductions; None where all were, or
    where that is not known.
    """
    reducing = thread[~is_gather]
    if (thread == NULL).any() or not len(reducing):
        return None
    threads, counts = np.unique(reducing, return_counts=True)
    back = thread == threads[np.argmax(counts)]
    return None if back.all() else np.asarray(back)


class _Pass(Struct, frozen=True):
    """One pass of a step before it is divided into units. Rows of facts.comms, in launch order; ns."""

    is_backward: bool
    gathers: Array
    reductions: Array
    count: int  # of its units
    cuts_ns: Array  # moments between which the compute of a unit is launched
    since_ns: Array  # (gathers,), when the communication before each had ended


class _Timeline(Struct, frozen=True):
    """Compute intervals of one rank, for the passes of all its steps."""

    facts: RankFacts
    launched_ns: Array  # each communication
    start_ns: Array  # of the transfer of each communication
    transfer_ns: Array
    exposed_ns: Array
    compute: intervals.Intervals
    idle_beside: intervals.Intervals  # compute while no sharded communication runs or waits
    kernels: Array  # rows of device_ops, by launch; without those launched before the recording
    kernel_issued_ns: Array
    reach_ns: Array  # (kernels + 1,), what the kernels before each take
    operator: Array  # of each kernel, -1 for none

    @staticmethod
    def of(job: JobFacts, position: int, rows: Array) -> _Timeline:
        """The timeline of the rank at `position`; `rows`: its sharded communications, rows of comms."""
        facts = job.ranks[position]
        ready, end = ready_by_comm(job.members, position, facts), facts.comms["end_ns"]
        compute = compute_work(facts)
        alone = intervals.subtract(compute, intervals.union(*facts.comms.bounds_of(rows)))
        kernels = np.flatnonzero((facts.device_ops["work"] == Work.COMPUTE) & ~is_early(facts.device_ops))
        issued = issued_ns(facts.device_ops)[kernels]
        order = np.argsort(issued, kind="stable")
        exposed = np.maximum(end - ready, 0) - intervals.overlap(compute, ready, np.maximum(end, ready))
        kernels = kernels[order]
        length, operator = facts.device_ops["end_ns"] - facts.device_ops["start_ns"], facts.device_ops["operator"]
        operator = operator[kernels].astype(np.int64)
        operator[operator == NO_STRING] = -1
        return _Timeline(
            facts, issued_ns(facts.comms), ready, end - ready, exposed, compute, alone,
            kernels, issued[order], np.append(0, np.cumsum(length[kernels])), operator,
        )  # fmt: skip

    def one_pass(self, is_backward: bool, rows: Array, before: int, begin_ns: int, until_ns: int) -> _Pass:
        """The pass from `begin_ns` to `until_ns` that communicates `rows`; without units where it has too few.
        `before`: the communication before the pass in the same step, -1 for none.
        """
        launched, start, end = self.launched_ns, self.start_ns, self.facts.comms["end_ns"]
        gather = self.facts.comms["op"][rows] == OP_CODE["all_gather"]
        gathers, reductions = rows[gather], rows[~gather & is_backward]
        count = max(len(gathers), len(reductions)) if len(reductions if is_backward else gathers) else 0
        if is_backward:
            first = launched[rows[0]] if gather[0] else launched[before] if before >= 0 else begin_ns
            cuts = np.append(first, launched[reductions])
        else:
            cuts = np.append(launched[gathers], min(until_ns, self._pass_end(gathers)) if count else until_ns)
        # The first gather of a forward pass cannot be ahead: the optimizer has just changed the parameters.
        since = np.append(start[gathers[:1]] if before < 0 or not is_backward else end[before], end[gathers[:-1]])
        return _Pass(is_backward, gathers, reductions, count, cuts, since[: len(gathers)])

    def units(self, passes: list[_Pass]) -> list[Units]:
        """The units of each pass, with the windows of all passes queried at once."""
        if not passes:
            return []
        gathers = np.concatenate([one.gathers for one in passes])
        since, start, launched = np.concatenate([one.since_ns for one in passes]), self.start_ns, self.launched_ns
        unhidden = intervals.overlap(self.idle_beside, np.minimum(since, start[gathers]), start[gathers])
        queued = intervals.overlap(self.compute, np.minimum(launched[gathers], start[gathers]), start[gathers])
        compute, operators = self._computed(passes)
        counts = [one.count for one in passes]
        of_gather, of_reduction = np.full((2, sum(counts)), -1)
        last = _last(counts, [len(one.gathers) for one in passes])
        of_gather[last] = gathers
        reduced = _last(counts, [len(one.reductions) for one in passes])
        of_reduction[reduced] = np.concatenate([one.reductions for one in passes])
        idle_beside, behind = np.zeros((2, sum(counts)))
        idle_beside[last], behind[last] = unhidden, queued
        comms = self.facts.comms
        sizes = np.where(of_gather >= 0, comms["size_bytes"][of_gather], comms["size_bytes"][of_reduction])
        size, operator = (np.unique(values, return_inverse=True)[1] for values in (sizes, operators))
        shape = np.where(operators == UNKNOWN, UNKNOWN, size * (operator.max(initial=0) + 1) + operator)
        by_unit = (
            of_gather, of_reduction, _taken(self.transfer_ns, of_gather), _taken(self.transfer_ns, of_reduction),
            _like_before(compute, shape, counts), _taken(self.exposed_ns, of_gather),
            _taken(self.exposed_ns, of_reduction), idle_beside, behind, shape,
        )  # fmt: skip
        end = np.cumsum(counts).tolist()
        parts = (slice(until - count, until) for until, count in zip(end, counts, strict=True))
        return [
            Units(one.is_backward, *(c[of_pass] for c in by_unit)) for one, of_pass in zip(passes, parts, strict=True)
        ]

    def _pass_end(self, gathers: Array) -> int:
        """Latest end of a forward pass: one more gather's worth of launches after the last gather."""
        launched = self.launched_ns[gathers]
        between = np.sort(np.diff(launched))
        middle = between[(len(between) - 1) // 2] + between[len(between) // 2] if len(between) else 0  # twice
        return int(launched[-1] + middle) + 1

    def _computed(self, passes: Sequence[_Pass]) -> tuple[Array, Array]:
        """Compute that each unit waits for, ns, and a number for its operators, both (units of all passes,)."""
        compute, operators = self._blocks(np.concatenate([one.cuts_ns for one in passes]))
        by_pass, cut = [], 0
        for one in passes:
            of_pass = slice(cut, cut + len(one.cuts_ns) - 1)
            cut = of_pass.stop + 1
            part = compute[of_pass], operators[of_pass]
            lacking = np.zeros(one.count - len(part[0]), np.int64)
            by_pass.append([np.append(lacking, p) for p in part] if one.is_backward else _shifted(*part))
        return np.concatenate([times for times, _ in by_pass]), np.concatenate([numbers for _, numbers in by_pass])

    def _blocks(self, cuts_ns: Array) -> tuple[Array, Array]:
        """Compute launched between consecutive moments, ns, and a number for its operators, both (cuts - 1,)."""
        if not len(self.kernels):
            times = intervals.overlap(self.compute, cuts_ns[:-1], np.maximum(cuts_ns[1:], cuts_ns[:-1]))
            return times.astype(float), np.zeros(len(times), np.int64)
        at = np.searchsorted(self.kernel_issued_ns, cuts_ns)
        reach = self.reach_ns
        numbers = [hash(self.operator[a:b].tobytes()) for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True)]
        return (reach[at[1:]] - reach[at[:-1]]).astype(float), np.array(numbers, np.int64)


def _shifted(compute: Array, operators: Array) -> tuple[Array, Array]:
    """Compute by the unit that it needs: gathers before any compute run ahead by as many units.

    What is launched after the last gather is the compute of the units that were gathered ahead and of the last one.
    """
    some = np.flatnonzero(compute > NO_COMPUTE * compute.max(initial=0.0))
    ahead = int(some[0]) if len(some) else 0
    last = ahead + 1
    return (
        np.append(compute[ahead:-1], np.full(last, compute[-1] / last)),
        np.append(operators[ahead:-1], np.full(last, UNKNOWN)),
    )


def _last(counts: Sequence[int], given: Sequence[int]) -> Array:
    """Places of the last `given` units of each pass: what a pass has too little of, its first units have none of."""
    end, number = np.cumsum(counts), np.array(given)
    places: Array = np.arange(number.sum()) + np.repeat(end - np.cumsum(number), number)
    return places


def _taken(values: Array, rows: Array) -> Array:
    return np.append(values, 0)[rows].astype(float)  # row -1 is none


def typical(passes: Sequence[Units], is_backward: bool) -> Units | None:
    """The pass of a direction with the usual number of units, each of the shape that it mostly has: a kernel without a
    record changes that of one. None without one. `passes`: of one rank.
    """
    alike = [p for p in passes if p.is_backward == is_backward]
    if not alike:
        return None
    counts = np.array([len(p.gathers) for p in alike])
    usual = int(np.median(counts))
    one = alike[int(np.argmin(np.abs(counts - usual)))]
    shapes = zip(*(p.shape.tolist() for p in alike if len(p.gathers) == len(one.gathers)), strict=True)
    return replace(one, shape=np.array([mode(of_unit) for of_unit in shapes], np.int64))


# Latency of gathering or reducing sharded parameters, independent of size.

# About the bus bandwidth of large messages inside a node of NVLink (NCCL's tests on A100 and H100: 200 to 450 GB/s).
FAST_BYTES_PER_NS = 200.0
SHORTEST = 0.05  # quantile: a call that ended early by chance is no bound


class UnitLatency(Struct, frozen=True):
    """Latency of one call. `is_measured`: from messages of several sizes; else an upper bound: the excess over a fast
    link for the only size or, without sizes, the shortest call.
    """

    ns: float
    share: float  # of the typical call
    is_measured: bool


def unit_latency(comm: CommStats) -> UnitLatency | None:
    """The latency of calls that gather and reduce units; None without any."""
    traffic = [t for t in comm.traffic if t.role == ROLE and t.op in ("all_gather", "reduce_scatter")]
    if not traffic:
        return None
    sizes = np.concatenate([t.sizes_bytes for t in traffic]).astype(float)
    times_ns = np.concatenate([t.times_us for t in traffic]) * 1e3
    if not (times_ns > 0).any():
        return None
    usable = (sizes > 0) & (times_ns > 0)
    if not usable.any():
        some = times_ns[times_ns > 0]
        ns, usual_ns = float(np.quantile(some, SHORTEST)), float(np.median(some))
        return UnitLatency(ns, ns / usual_ns, False)
    usual_ns = float(np.median(times_ns[usable]))
    model = fit_cost(sizes, times_ns)
    if model is not None:
        ns = min(model.alpha_ns, usual_ns)
        return UnitLatency(ns, ns / usual_ns, True)
    ns = max(0.0, float(np.median(times_ns[usable] - sizes[usable] / FAST_BYTES_PER_NS)))
    return UnitLatency(ns, ns / usual_ns, False)

"""Time of a device without kernels: exposed communication, copies, and idle gaps with their host cause.

An idle gap belongs to what the host did before the launch that ends it; `_attribute` has the table of precedence.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import is_early
from ddprof.analyzers.facts.model import EXPOSED, GAPS, Work, of_cause
from ddprof.causes import CAUSE_CODE, HOST_OCCUPANTS
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

# From the launch call to the kernel's start on an idle device: up to 10 us is normal, 100 us happens under contention.
MAX_LAUNCH_LATENCY_NS = 200_000


def busy(ops: Table, work: Work) -> Intervals:
    """Intervals in which any operation of this kind runs on the device (union over streams)."""
    return intervals.union(*ops.bounds_of(ops["work"] == work))


def exposed_comm(comms: Table, compute: Intervals) -> Table:
    """EXPOSED: communication without concurrent compute, each instant given to the communication that ends last."""
    start, end, holder = intervals.holders(*comms.bounds)
    if not len(start):
        return EXPOSED.empty()
    hidden_free = intervals.complement(compute, int(start[0]), int(end[-1]) + 1)
    piece_start, piece_end, row, _ = intervals.intersect_rows((start, end), hidden_free)
    return EXPOSED.table({"comm": holder[row], "start_ns": piece_start, "end_ns": piece_end})


def find_gaps(
    ops: Table,
    spans: Table,
    marks_ns: Array,
    comm: Intervals,
    work: Intervals | None = None,
    streams_wait: bool = False,
) -> Table:
    """Copy time and idle time between the first and the last of `marks_ns` (step boundaries), split by cause; sorted.

    `work` replaces the compute of `ops` on CPU ranks. `streams_wait`: the trace shows which streams were made to wait
    for events, so that an operation launched long before it starts is known to wait for one (cause "other"); without
    that it is unexplained.
    """
    lo, hi = int(marks_ns[0]), int(marks_ns[-1])
    compute = busy(ops, Work.COMPUTE) if work is None else work
    working = intervals.merge(compute, comm)
    copies = intervals.subtract(intervals.clip(busy(ops, Work.COPY), lo, hi), working)
    idle = intervals.complement(intervals.merge(working, copies), lo, hi)
    pieces = [(copies, "memcpy")]
    if len(idle[0]):
        pieces += _attribute(idle, _next_launch(ops, idle), spans, "other" if streams_wait else "unknown")
    start, end = (np.concatenate(bounds) for bounds in zip(*(part for part, _ in pieces), strict=True))
    cause = np.repeat([CAUSE_CODE[of] for _, of in pieces], [len(part[0]) for part, _ in pieces])
    gaps = GAPS.table({"start_ns": start, "end_ns": end, "cause": cause, "next_op": _next_op(ops, end)})
    return gaps.ordered()


def unexplained(gaps: Table) -> Table:
    """The gaps, all but recorded copies with cause "unknown", for traces that lack part of device or host."""
    is_copy = gaps["cause"] == CAUSE_CODE["memcpy"]
    return gaps.replace(cause=np.where(is_copy, gaps["cause"], CAUSE_CODE["unknown"]))


def _next_op(ops: Table, at_ns: Array) -> Array:
    """Row of the first operation that starts at or after each instant; NULL after the last."""
    order = np.argsort(ops["start_ns"], kind="stable")
    return np.append(order, NULL)[np.searchsorted(ops["start_ns"][order], at_ns)]


def _next_launch(ops: Table, idle: Intervals) -> Array:
    """Return time of the call that launched the operation which ends each gap.

    NULL where it is unknown, the gap's end where no operation ends the gap, and the start of the first operation where
    the call was made before the recording. The return counts because modules load, queues fill up and pageable memory
    is staged inside the call.
    """
    if not len(ops):
        return idle[1].copy()
    following = _next_op(ops, idle[1])
    exists = following != NULL
    row = np.where(exists, following, 0)
    ends_here = exists & (ops["start_ns"][row] == idle[1])
    launched = np.where(is_early(ops), ops["start_ns"].min(), ops["launch_end_ns"])
    return np.where(ends_here, launched[row], idle[1])


class _Idle:
    """Idle time without a cause so far, and the pieces that have one."""

    def __init__(self, idle: Intervals) -> None:
        self.left = idle
        self.pieces: list[tuple[Intervals, str]] = []

    def book(self, where: Intervals, cause: str) -> Intervals:
        """Assign the still unassigned part of some stretches to a cause; return that part."""
        taken = intervals.intersect(self.left, where)
        self.left = intervals.subtract(self.left, taken)
        self.pieces.append((taken, cause))
        return taken


def _attribute(gaps: Intervals, launched_ns: Array, spans: Table, queued_cause: str) -> list[tuple[Intervals, str]]:
    """Pieces of some idle gaps, each with its cause.

    A gap ends with an operation. The return of the call that launched it (`launched_ns`, shape (gaps,); `_next_launch`)
    divides the gap into a host part, in which there was nothing to run, and a device part, in which the operation was
    launched and had yet to start. A gap whose launch is unknown is all host part. Of each instant the first row holds:

    row   covered by                                                     where            cause
    1-4   a span of collection, allocation, saving, loading              host part        its own (HOST_OCCUPANTS)
    5     a blocking call that waits for nothing on the device           host part        other
    6     a blocking call and as long after it, to the next fetch        both parts       host_sync
    7     a blocking call: host and device wait for a copy or a peer     rows 8 and 9     host_sync
    8     an operation that waits longer than a launch takes             device part      `queued_cause`
    9     nothing that was recorded                                      unknown launch   unknown
    10    the host before the launch; a launch of ordinary latency       both parts       host_launch
    """
    start, end = gaps
    is_known = launched_ns != NULL
    split = np.where(is_known, np.clip(launched_ns, start, end), end)
    has_host_part = split > start
    host_part = (start[has_host_part], split[has_host_part])
    is_long = is_known & (end - split > MAX_LAUNCH_LATENCY_NS)
    queued = (split[is_long], end[is_long])
    unknown_launch = (start[~is_known], end[~is_known])

    idle, fetches = _Idle(gaps), intervals.EMPTY
    for cause in HOST_OCCUPANTS:
        occupied = intervals.union(*of_cause(spans, cause).bounds)
        taken = idle.book(intervals.intersect(host_part, occupied), cause)
        fetches = taken if cause == "dataloader" else fetches
    blocking = of_cause(spans, "host_sync").bounds
    holding, vain = _blocking_calls(gaps, split, blocking, fetches[0])
    idle.book(vain, "other")
    idle.book(holding, "host_sync")
    unclear = intervals.merge(queued, unknown_launch)
    idle.book(intervals.intersect(unclear, intervals.union(*blocking)), "host_sync")
    idle.book(queued, queued_cause)
    idle.book(unknown_launch, "unknown")
    idle.book(idle.left, "host_launch")
    return idle.pieces


def _blocking_calls(gaps: Intervals, split: Array, blocking: Intervals, fetch_ns: Array) -> tuple[Intervals, Intervals]:
    """Blocking calls that touch a gap's host part, extended by what refilling the queue explains of the gap after each;
    and those that wait for nothing recorded, with an idle device and no launch up to their end.

    A call delays the host by no more than its own length. The rest of a longer gap, and all after the loader's next
    fetch, is not due to the call. A call that waits for nothing (the profiler's own at start and stop) delays nobody.
    `split`, shape (gaps,): end of each gap's host part. `blocking`: the calls by start. `fetch_ns`: sorted.
    """
    begin, finish = blocking
    if not len(begin) or not len(gaps[0]):
        return intervals.EMPTY, intervals.EMPTY
    start, end = gaps
    # Calls that begin inside a gap's host part, and for each gap the first call that blocked until it began.
    gap = np.minimum(np.searchsorted(split, begin, side="right"), len(split) - 1)
    inside = (begin >= start[gap]) & (begin < split[gap])
    vain = inside & (finish <= split[gap])
    inside &= ~vain
    reach = np.maximum.accumulate(finish)
    first = np.minimum(np.searchsorted(reach, start), len(begin) - 1)
    carried = (begin[first] <= start) & (reach[first] >= start) & (split > start) & ~vain[first]
    # A call returns when the device is done: one that goes on waits for what is not in the recording.
    longer = carried & (finish[first] - start > MAX_LAUNCH_LATENCY_NS)
    beyond = start[longer], np.minimum(finish[first], split)[longer]
    from_ns = np.concatenate((begin[inside], start[carried]))
    to_ns = np.concatenate((end[gap[inside]], end[carried]))
    held_until = finish + (finish - begin)
    to_ns = np.minimum(to_ns, np.concatenate((held_until[inside], held_until[first[carried]])))
    following = np.searchsorted(fetch_ns, from_ns, side="right")
    limit = np.append(fetch_ns, np.iinfo(np.int64).max)[following]
    without_effect = intervals.merge(intervals.union(begin[vain], finish[vain]), intervals.union(*beyond))
    return intervals.union(from_ns, np.minimum(to_ns, limit)), without_effect

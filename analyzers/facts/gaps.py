"""Where a device's time went that no kernel claims: exposed communication, copies, idle gaps with their host cause.

An idle gap belongs to what the host did before the launch that ends it: explicit occupants first, innermost first
(collection, allocation, saving, loading); after a blocking call the rest of the gap is host_sync; the remainder of the
host part is host_launch. Time after the launch is launch latency, or unexplained where it is long.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import is_early
from ddprof.analyzers.facts.model import EXPOSED, GAPS, Work
from ddprof.causes import CAUSE_CODE, HOST_OCCUPANTS
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table, concat

# From launch call to kernel start on an idle device: <= 10 us is normal, 100 us happens under contention.
MAX_LAUNCH_LATENCY_NS = 200_000


def busy(ops: Table, work: Work) -> Intervals:
    """When any operation of this kind runs on the device (union over streams)."""
    mine = ops["work"] == work
    return intervals.union(ops["start_ns"][mine], ops["end_ns"][mine])


def exposed_comm(comms: Table, compute: Intervals) -> Table:
    """Instants with communication and no compute, each given to the running communication that ends last."""
    order = np.argsort(comms["start_ns"], kind="stable")
    start, end = comms["start_ns"][order], comms["end_ns"][order]
    if not len(start):
        return EXPOSED.empty()
    reach = np.maximum.accumulate(end)
    holder = np.maximum.accumulate(np.where(end == reach, np.arange(len(end)), 0))
    until = np.minimum(np.append(start[1:], reach[-1]), reach)
    keep = until > start
    owned = (start[keep], until[keep])
    hidden_free = intervals.complement(compute, int(start[0]), int(reach[-1]) + 1)
    piece_start, piece_end, row, _ = intervals.intersect_rows(owned, hidden_free)
    return EXPOSED.table({"comm": order[holder[keep][row]], "start_ns": piece_start, "end_ns": piece_end})


def find_gaps(
    ops: Table,
    spans: Table,
    marks_ns: Array,
    comm: Intervals,
    work: Intervals | None = None,
    streams_wait: bool = False,
) -> Table:
    """Copy time and idle time between the first and the last of `marks_ns` (step boundaries), split by cause; sorted.

    `work` replaces the compute of `ops` on ranks whose device is the host thread. `streams_wait`: the trace shows
    streams made to wait for events, so that an operation launched long before it starts is held by one (cause "other"),
    not unexplained.
    """
    lo, hi = int(marks_ns[0]), int(marks_ns[-1])
    compute = busy(ops, Work.COMPUTE) if work is None else work
    held = intervals.union(np.concatenate((compute[0], comm[0])), np.concatenate((compute[1], comm[1])))
    copies = intervals.subtract(intervals.clip(busy(ops, Work.COPY), lo, hi), held)
    everything = intervals.union(np.concatenate((held[0], copies[0])), np.concatenate((held[1], copies[1])))
    idle = intervals.complement(everything, lo, hi)
    tables = [_pieces(copies, "memcpy")]
    if len(idle[0]):
        tables += _attribute(idle, _next_launch(ops, idle), spans, "other" if streams_wait else "unknown")
    gaps = concat(GAPS, tables)
    gaps = gaps.take(np.argsort(gaps["start_ns"], kind="stable"))
    return gaps.replace(next_op=_next_op(ops, gaps["end_ns"]))


def unexplained(gaps: Table) -> Table:
    """The same gaps without a cause: where nothing else was recorded, idle time has no known occupant."""
    return gaps.replace(cause=np.full(len(gaps), CAUSE_CODE["unknown"]))


def _pieces(part: Intervals, cause: str) -> Table:
    count = len(part[0])
    return GAPS.table(
        {
            "start_ns": part[0],
            "end_ns": part[1],
            "cause": np.full(count, CAUSE_CODE[cause]),
            "next_op": np.full(count, NULL),
        }
    )


def _next_op(ops: Table, at_ns: Array) -> Array:
    """Row of the first operation that starts at or after each instant; NULL after the last."""
    order = np.argsort(ops["start_ns"], kind="stable")
    at = np.searchsorted(ops["start_ns"][order], at_ns)
    return np.where(at < len(order), order[np.minimum(at, len(order) - 1)] if len(order) else 0, NULL)


def _next_launch(ops: Table, idle: Intervals) -> Array:
    """When the host call that ends each gap returned: NULL if unknown, the gap's end if nothing follows in the steps,
    before everything if it was made before the recording.

    The call counts as host work: it is where modules load, queues fill and pageable memory is staged.
    """
    if not len(ops):
        return idle[1].copy()
    following = _next_op(ops, idle[1])
    exists = following != NULL
    row = np.where(exists, following, 0)
    ends_here = exists & (ops["start_ns"][row] == idle[1])
    launched = np.where(is_early(ops), ops["start_ns"].min(), ops["launch_end_ns"])
    return np.where(ends_here, launched[row], idle[1])


def _attribute(idle: Intervals, launch_ns: Array, spans: Table, held_cause: str) -> list[Table]:
    start, end = idle
    known = launch_ns != NULL
    split = np.where(known, np.clip(launch_ns, start, end), end)
    rest: Intervals = (start[split > start], split[split > start])
    tables = []
    fetches = intervals.EMPTY
    for cause in HOST_OCCUPANTS:
        mine = spans["cause"] == CAUSE_CODE[cause]
        occupied = intervals.intersect(rest, intervals.union(spans["start_ns"][mine], spans["end_ns"][mine]))
        tables.append(_pieces(occupied, cause))
        fetches = occupied if cause == "dataloader" else fetches
        rest = intervals.subtract(rest, occupied)
    late = end - split > MAX_LAUNCH_LATENCY_NS
    latency: Intervals = (split[end > split], end[end > split])
    rest = intervals.union(np.concatenate((rest[0], latency[0])), np.concatenate((rest[1], latency[1])))
    after_sync = _after_sync(idle, split, spans, fetches[0])
    synced = intervals.intersect(rest, after_sync)
    rest = intervals.subtract(rest, after_sync)
    held_at = known & late & (end > split)
    unknown_at = held_at | ~known
    unknown_in: Intervals = (np.where(known, split, start)[unknown_at], end[unknown_at])
    # A launched operation that does not start while the host itself blocks on the device: both wait for a third (a
    # copy, a peer).
    sync = spans["cause"] == CAUSE_CODE["host_sync"]
    blocked = intervals.union(spans["start_ns"][sync], spans["end_ns"][sync])
    held = intervals.intersect(intervals.intersect(rest, unknown_in), blocked)
    tables.append(_pieces(held, "host_sync"))
    rest = intervals.subtract(rest, held)
    queued = intervals.intersect(rest, (split[held_at], end[held_at]))
    unexplained = intervals.subtract(intervals.intersect(rest, unknown_in), queued)
    rest = intervals.subtract(rest, unknown_in)
    tables += [_pieces(queued, held_cause), _pieces(unexplained, "unknown")]
    return [*tables, _pieces(synced, "host_sync"), _pieces(rest, "host_launch")]


def _after_sync(idle: Intervals, split: Array, spans: Table, fetch_ns: Array) -> Intervals:
    """From each blocking call that touches a gap's host part to the next loader fetch, else to the end of the gap."""
    sync = spans["cause"] == CAUSE_CODE["host_sync"]
    begin, finish = spans["start_ns"][sync], spans["end_ns"][sync]
    if not len(begin) or not len(idle[0]):
        return intervals.EMPTY
    start, end = idle
    # Calls that begin inside a gap's host part, and for each gap the first call that was still blocking when it began.
    gap = np.minimum(np.searchsorted(split, begin, side="right"), len(split) - 1)
    inside = (begin >= start[gap]) & (begin < split[gap])
    reach = np.maximum.accumulate(finish)
    first = np.minimum(np.searchsorted(reach, start, side="right"), len(begin) - 1)
    carried = (begin[first] <= start) & (reach[first] > start) & (split > start)
    from_ns = np.concatenate((begin[inside], start[carried]))
    to_ns = np.concatenate((end[gap[inside]], end[carried]))
    following = np.searchsorted(fetch_ns, from_ns, side="right")
    limit = np.append(fetch_ns, np.iinfo(np.int64).max)[following]
    return intervals.union(from_ns, np.minimum(to_ns, limit))

"""Set arithmetic on half-open intervals [start, end) of int64 nanoseconds.

An interval set is a pair of equally long int64 arrays, sorted and disjoint, as `union` returns it. Every function is a
vectorised pass over sorted arrays; laws (idempotence, De Morgan, lengths add up) are property-tested.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Intervals = tuple[Int64, Int64]

EMPTY: Intervals = (np.empty(0, np.int64), np.empty(0, np.int64))
MOST_DEEP = 256  # frames around a call, on average; with Python's stacks they are below a hundred
_FREE_ROWS = 1 << 26  # that may be looked at, however deep they are: about a second


def union(start_ns: Int64, end_ns: Int64) -> Intervals:
    """The disjoint, sorted union of any intervals; empty ones (end <= start) vanish, touching ones merge."""
    if len(start_ns):
        keep = end_ns > start_ns
        start_ns, end_ns = start_ns[keep], end_ns[keep]
    if not len(start_ns):
        return EMPTY
    if np.any(start_ns[1:] < start_ns[:-1]):
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reach = np.maximum.accumulate(end_ns)
    first = np.ones(len(start_ns), bool)
    first[1:] = start_ns[1:] > reach[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(start_ns) - 1)
    return start_ns[first], reach[last]


def holders(start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64, Int64]:
    """The union in pieces, each owned by the interval that ends last at that moment: start, end, row; sorted."""
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], end_ns[order]
    if not len(start_ns):
        return start_ns, end_ns, order
    reach = np.maximum.accumulate(end_ns)
    holder = np.maximum.accumulate(np.where(end_ns == reach, np.arange(len(end_ns)), 0))
    until = np.minimum(np.append(start_ns[1:], reach[-1]), reach)
    keep = until > start_ns
    return start_ns[keep], until[keep], order[holder[keep]]


def merge(*parts: Intervals) -> Intervals:
    """The union of all parts, which may overlap within and among themselves and be unsorted."""
    return union(np.concatenate([start for start, _ in parts]), np.concatenate([end for _, end in parts]))


def length(a: Intervals) -> int:
    """Total length in ns."""
    return int((a[1] - a[0]).sum())


def clip(a: Intervals, lo_ns: int, hi_ns: int) -> Intervals:
    """The part of `a` inside [lo_ns, hi_ns)."""
    start, end = np.maximum(a[0], lo_ns), np.minimum(a[1], hi_ns)
    keep = end > start
    return start[keep], end[keep]


def complement(a: Intervals, lo_ns: int, hi_ns: int) -> Intervals:
    """[lo_ns, hi_ns) without `a`."""
    start, end = clip(a, lo_ns, hi_ns)
    gap_start = np.concatenate((np.array([lo_ns], np.int64), end))
    gap_end = np.concatenate((start, np.array([hi_ns], np.int64)))
    keep = gap_end > gap_start
    return gap_start[keep], gap_end[keep]


def intersect_rows(a: Intervals, b: Intervals) -> tuple[Int64, Int64, Int64, Int64]:
    """Every non-empty intersection of a member of `a` with one of `b`: start, end, row of a, row of b."""
    if not len(a[0]) or not len(b[0]):
        none = np.empty(0, np.int64)
        return none, none, none, none
    first = np.searchsorted(b[1], a[0], side="right")
    last = np.searchsorted(b[0], a[1], side="left")
    counts = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(a[0])), counts)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    other = np.repeat(first, counts) + offset
    start, end = np.maximum(a[0][row], b[0][other]), np.minimum(a[1][row], b[1][other])
    keep = end > start
    return start[keep], end[keep], row[keep], other[keep]


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The instants in both sets."""
    return intersect_rows(a, b)[:2]


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The instants of `a` that are not in `b`."""
    if not len(a[0]) or not len(b[0]):
        return a
    return intersect(a, complement(b, int(a[0][0]), int(a[1].max())))


def covered(a: Intervals, at_ns: Int64) -> Int64:
    """Length of `a` before each instant of `at_ns`: the prefix sum that makes any window query two look-ups."""
    start, end = a
    if not len(start):
        return np.zeros(len(at_ns), np.int64)
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(end - start)))
    row = np.searchsorted(start, at_ns, side="right")
    inside = np.where(row > 0, np.minimum(at_ns - start[row - 1], end[row - 1] - start[row - 1]), 0)
    return total[np.maximum(row - 1, 0)] + np.maximum(inside, 0)


def overlap(a: Intervals, lo_ns: Int64, hi_ns: Int64) -> Int64:
    """Length of `a` inside each window [lo_ns[i], hi_ns[i])."""
    if not len(a[0]) or not len(lo_ns):
        return np.zeros(len(lo_ns), np.int64)
    edges_ns = np.concatenate((lo_ns, hi_ns))
    first = np.searchsorted(a[1], edges_ns.min(), side="right")  # few windows lie in a small part of a long recording
    until = np.searchsorted(a[0], edges_ns.max(), side="left")
    at_ns = covered((a[0][first:until], a[1][first:until]), edges_ns)
    return at_ns[len(lo_ns) :] - at_ns[: len(lo_ns)]


def row_at(a: Intervals, at_ns: Int64) -> Int64:
    """Row of the member of `a` that holds each instant of `at_ns`; -1 where none does."""
    start, end = a
    if not len(start):
        return np.full(len(at_ns), -1)
    row = np.searchsorted(start, at_ns, side="right") - 1
    return np.where((row >= 0) & (at_ns < end[row]), row, -1)


def contains(a: Intervals, at_ns: Int64) -> npt.NDArray[np.bool_]:
    """Mask of the instants in `at_ns` that lie inside `a`."""
    return np.asarray(row_at(a, at_ns) >= 0)


def nested(start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64, Int64]:
    """End of each frame of a thread, the row of its parent (-1: none) and its depth, 1 for the outermost.

    A frame cannot outlive its caller. Where it does, the caller's end was rounded or stamped late, and the two are made
    siblings: the earlier ends where the later begins. `start_ns`: sorted, the longest first among equals. Calls nested
    deeper than MOST_DEEP, on the average of many, are one another's siblings without length: their caller has the time.
    """
    end_ns, parent, depth = end_ns.copy(), np.full(len(start_ns), -1), np.zeros(len(start_ns), np.int64)
    left, level = np.arange(len(start_ns)), 0
    around, most = np.full(len(start_ns), -1), max(MOST_DEEP * len(start_ns), _FREE_ROWS)
    while len(left):
        level += 1
        most -= len(left)
        if most < 0:
            parent[left], depth[left], end_ns[left] = around[left], level, start_ns[left]
            break
        reach = np.maximum.accumulate(end_ns[left])
        is_here = np.append(True, end_ns[left][1:] > reach[:-1])
        here = left[is_here]
        parent[here], depth[here] = around[here], level
        end_ns[here[:-1]] = np.minimum(end_ns[here[:-1]], start_ns[here[1:]])
        left = left[~is_here]
        around[left] = here[np.searchsorted(here, left) - 1]
        end_ns[left] = np.minimum(end_ns[left], end_ns[around[left]])
    return end_ns, parent, depth


def outermost(start_ns: Int64, end_ns: Int64) -> npt.NDArray[np.bool_]:
    """Mask of a thread's frames that begin after all earlier ones have ended. `start_ns`: sorted as for `nested`."""
    return np.append(True, start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1])[: len(start_ns)]


def innermost(start_ns: Int64, end_ns: Int64, parent: Int64) -> tuple[Int64, Int64, Int64]:
    """Self time of a thread's frames in sorted pieces: start, end, row. `end_ns` and `parent` as from `nested`."""
    at_ns, owner, is_start = bounds(np.zeros(len(start_ns), np.int64), start_ns, end_ns)
    inner = np.where(is_start, owner, parent[owner])[:-1]
    keep = (inner >= 0) & (np.diff(at_ns) > 0)
    return at_ns[:-1][keep], at_ns[1:][keep], inner[keep]


def bounds(track: Int64, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64, npt.NDArray[np.bool_]]:
    """Starts and ends of nested frames in time order per thread: time, row, and a flag for starts.

    At one instant ends precede starts, and the inner frame ends first.
    """
    at_ns = np.concatenate((start_ns, end_ns))
    owner = np.tile(np.arange(len(track), dtype=np.int64), 2)
    is_start = np.arange(len(at_ns)) < len(track)
    inner_first = np.where(is_start, owner, -owner)
    order = np.lexsort((inner_first, is_start, at_ns, track[owner]))
    return at_ns[order], owner[order], is_start[order]

"""Python frames as events to stacks over time: what each host thread was in at every moment.

The frames of a thread nest. Frames of equal names under equal callers are one stack, so that the stacks of a rank are a
small tree however long it was recorded; every moment of a thread belongs to the stack of its innermost frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ddprof.model import SCRIPT_FRAMES, SCRIPT_SPANS, SCRIPT_STACKS
from ddprof.readers.script.frames import frame_of
from ddprof.tables import NULL, Array, Table

# Kineto names the call of each module besides its Python frame, which says the same and where it is written.
_MODULE = "nn.Module: "


class Script(NamedTuple):
    """The tables of RankTrace that say what the script ran."""

    spans: Table
    stacks: Table
    frames: Table


def traced_script(track: Array, start_ns: Array, dur_ns: Array, name: Array, strings: Sequence[str]) -> Script:
    """Stacks from the frames of a trace; one array element each, in any order. `name`: index into `strings`."""
    used, name = np.unique(name, return_inverse=True)
    written = [strings[number] for number in used.tolist()]
    keep = np.array([not text.startswith(_MODULE) for text in written], bool)[name] & (dur_ns > 0)
    order = np.lexsort((-dur_ns[keep], start_ns[keep], track[keep]))
    track, start_ns, dur_ns, name = (column[keep][order] for column in (track, start_ns, dur_ns, name))
    if not len(track):
        return Script(SCRIPT_SPANS.empty(), SCRIPT_STACKS.empty(), SCRIPT_FRAMES.empty())
    end_ns, parent, depth = (
        np.concatenate(parts) for parts in zip(*_nested_by_track(track, start_ns, dur_ns), strict=True)
    )
    keep = end_ns > start_ns
    parent = np.where(parent[keep] >= 0, (np.cumsum(keep) - 1)[parent[keep]], -1)
    track, start_ns, end_ns, name, depth = (column[keep] for column in (track, start_ns, end_ns, name, depth))
    frames, frame = _frames(written, name)
    bound, owner, is_start = _bounds(track, start_ns, end_ns)
    stacks, stack = _stacks(frame, parent, depth)
    spans = _spans(track, bound, np.where(is_start, owner, parent[owner]), stack)
    return Script(spans, stacks, frames)


def _nested_by_track(track: Array, start_ns: Array, dur_ns: Array) -> Iterator[tuple[Array, Array, Array]]:
    """`_nested` of the frames of each thread, which stand together."""
    for first, count in zip(*np.unique(track, return_index=True, return_counts=True)[1:], strict=True):
        rows = slice(first, first + count)
        end_ns, parent, depth = _nested(start_ns[rows], start_ns[rows] + dur_ns[rows])
        yield end_ns, np.where(parent >= 0, parent + first, -1), depth


def _nested(start_ns: Array, end_ns: Array) -> tuple[Array, Array, Array]:
    """When each frame of a thread ends, the frame around it (-1: none) and its depth, 1 for the outermost.

    A frame cannot outlive the one that called it. One that does follows on the other, whose end was rounded or stamped
    late: the other ends where it begins. `start_ns`: sorted, the longest first where they are equal.
    """
    end_ns, parent, depth = end_ns.copy(), np.full(len(start_ns), -1), np.zeros(len(start_ns), np.int64)
    left, level = np.arange(len(start_ns)), 0
    around = np.full(len(start_ns), -1)
    while len(left):
        level += 1
        reach = np.maximum.accumulate(end_ns[left])
        is_here = np.append(True, end_ns[left][1:] > reach[:-1])
        here = left[is_here]
        parent[here], depth[here] = around[here], level
        end_ns[here[:-1]] = np.minimum(end_ns[here[:-1]], start_ns[here[1:]])
        left = left[~is_here]
        around[left] = here[np.searchsorted(here, left) - 1]
        end_ns[left] = np.minimum(end_ns[left], end_ns[around[left]])
    return end_ns, parent, depth


def _frames(written: Sequence[str], name: Array) -> tuple[Table, Array]:
    """SCRIPT_FRAMES, and the row of each event's frame."""
    known: dict[tuple[object, ...], int] = {}
    parsed = [frame_of(text) for text in written]
    number = np.array([known.setdefault(frame, len(known)) for frame in parsed])
    columns = zip(*known, strict=True)
    return SCRIPT_FRAMES.table(dict(zip(("file", "line", "function", "is_user"), columns, strict=True))), number[name]


def _bounds(track: Array, start_ns: Array, end_ns: Array) -> tuple[Array, Array, Array]:
    """Starts and ends of nested frames in the order of each thread: when, whose, and whether it is a start.

    At the same moment an end comes before a start, and of ends that of the inner frame first.
    """
    at_ns = np.concatenate((start_ns, end_ns))
    owner = np.tile(np.arange(len(track)), 2)
    is_start = np.arange(len(at_ns)) < len(track)
    inner_first = np.where(is_start, owner, -owner)
    order = np.lexsort((inner_first, is_start, at_ns, track[owner]))
    return at_ns[order], owner[order], is_start[order]


def _stacks(frame: Array, parent: Array, depth: Array) -> tuple[Table, Array]:
    """SCRIPT_STACKS, callers before what they call, and the row of each event's stack."""
    stack = np.empty(len(frame), np.int64)
    rows_frame, rows_outer, made = [], [], 0
    for level in range(1, int(depth.max()) + 1):
        here = np.flatnonzero(depth == level)
        outer = stack[parent[here]] if level > 1 else np.full(len(here), -1, np.int64)
        distinct, number = np.unique(np.stack((outer, frame[here])), axis=1, return_inverse=True)
        stack[here] = made + number.ravel()
        rows_outer.append(distinct[0])
        rows_frame.append(distinct[1])
        made += distinct.shape[1]
    outer = np.concatenate(rows_outer)
    table = {"frame": np.concatenate(rows_frame), "outer": np.where(outer < 0, NULL, outer)}
    return SCRIPT_STACKS.table(table), stack


def _spans(track: Array, bound: Array, innermost: Array, stack: Array) -> Table:
    """SCRIPT_SPANS from the frame that is innermost after each bound (-1: none), touching spans of a stack as one."""
    rows = np.flatnonzero((innermost[:-1] >= 0) & (np.diff(bound) > 0))
    start, end, frame = bound[rows], bound[rows + 1], innermost[rows]
    here, what = track[frame], stack[frame]
    is_new = np.ones(len(rows), bool)
    is_new[1:] = (here[1:] != here[:-1]) | (what[1:] != what[:-1]) | (start[1:] != end[:-1])
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(rows)) - 1
    columns = {"start_ns": start[first], "end_ns": end[last], "track": here[first], "stack": what[first]}
    table = SCRIPT_SPANS.table({**columns, "resolution_ns": np.zeros(len(first), np.int64)})
    return table.take(np.argsort(table["start_ns"], kind="stable"))

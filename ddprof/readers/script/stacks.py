"""Python frames as events to stacks over time: the stack of each host thread at every moment.

The frames of a thread nest. Frames of equal names under equal callers are one stack, so that the stacks of a rank are a
small tree however long it was recorded; every moment of a thread belongs to the stack of its innermost frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ddprof.intervals import bounds, nested
from ddprof.model import MODULE_SPANS, MODULE_STACKS, SCRIPT_FRAMES, SCRIPT_SPANS, SCRIPT_STACKS
from ddprof.readers.script.frames import Frame, frame_of
from ddprof.tables import NULL, Array, Table, distinct

# Kineto names the call of each module besides its Python frame, which says the same and where it is written.
_MODULE = "nn.Module: "


class Modules(NamedTuple):
    """Tables of RankTrace on which modules called one another."""

    spans: Table
    stacks: Table


class Script(NamedTuple):
    """Tables of RankTrace on the script's stacks."""

    spans: Table
    stacks: Table
    frames: Table


def traced_script(track: Array, start_ns: Array, dur_ns: Array, name: Array, strings: Sequence[str]) -> Script:
    """Stacks from the frames of a trace; one array element each, in any order. `name`: index into `strings`."""
    used, name = np.unique(name, return_inverse=True)
    written = [strings[number] for number in used.tolist()]
    is_frame = np.array([not text.startswith(_MODULE) for text in written], bool)
    return _folded(track, start_ns, dur_ns, name, written, is_frame)


def traced_modules(track: Array, start_ns: Array, dur_ns: Array, name: Array, strings: Sequence[str]) -> Modules:
    """Modules from the events of module calls."""
    used, name = np.unique(name, return_inverse=True)
    written = [strings[number] for number in used.tolist()]
    is_module = np.array([text.startswith(_MODULE) for text in written], bool)
    if not is_module.any():
        return Modules(MODULE_SPANS.empty(), MODULE_STACKS.empty())
    names = [text.removeprefix(_MODULE) for text in written]
    spans, stacks, frames = _folded(track, start_ns, dur_ns, name, names, is_module)
    called = frames["function"][stacks["frame"]]
    return Modules(
        MODULE_SPANS.table({column.name: spans[column.name] for column in MODULE_SPANS.columns}),
        MODULE_STACKS.table({"name": called, "outer": stacks["outer"]}),
    )


def _folded(
    track: Array, start_ns: Array, dur_ns: Array, name: Array, written: Sequence[str], is_wanted: Array
) -> Script:
    """The wanted calls as stacks over time. `name`: index into `written` and `is_wanted`."""
    keep = is_wanted[name] & (dur_ns > 0)
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
    bound, owner, is_start = bounds(track, start_ns, end_ns)
    stacks, stack = _stacks(frame, parent, depth)
    spans = _spans(track, bound, np.where(is_start, owner, parent[owner]), stack)
    return Script(spans, stacks, frames)


def _nested_by_track(track: Array, start_ns: Array, dur_ns: Array) -> Iterator[tuple[Array, Array, Array]]:
    """`nested` for the frames of each thread, which are contiguous."""
    for first, count in zip(*np.unique(track, return_index=True, return_counts=True)[1:], strict=True):
        rows = slice(first, first + count)
        end_ns, parent, depth = nested(start_ns[rows], start_ns[rows] + dur_ns[rows])
        yield end_ns, np.where(parent >= 0, parent + first, -1), depth


def _frames(written: Sequence[str], name: Array) -> tuple[Table, Array]:
    """SCRIPT_FRAMES, and the row of each event's frame."""
    numbers: dict[tuple[object, ...], int] = {}
    parsed = [frame_of(text) for text in written]
    number = np.array([numbers.setdefault(frame, len(numbers)) for frame in parsed])
    columns = zip(*numbers, strict=True)
    return SCRIPT_FRAMES.table(dict(zip(Frame._fields, columns, strict=True))), number[name]


def _stacks(frame: Array, parent: Array, depth: Array) -> tuple[Table, Array]:
    """SCRIPT_STACKS, callers before their callees, and the row of each event's stack."""
    stack = np.empty(len(frame), np.int64)
    rows_frame, rows_outer, made = [], [], 0
    for level in range(1, int(depth.max()) + 1):
        here = np.flatnonzero(depth == level)
        outer = stack[parent[here]] if level > 1 else np.full(len(here), -1, np.int64)
        (its_outer, its_frame), number = distinct(outer, frame[here])
        stack[here] = made + number
        rows_outer.append(its_outer)
        rows_frame.append(its_frame)
        made += len(its_outer)
    outer = np.concatenate(rows_outer)
    table = {"frame": np.concatenate(rows_frame), "outer": np.where(outer < 0, NULL, outer)}
    return SCRIPT_STACKS.table(table), stack


def _spans(track: Array, bound: Array, innermost: Array, stack: Array) -> Table:
    """SCRIPT_SPANS from the innermost frame after each bound (-1: none); touching spans of one stack are merged."""
    rows = np.flatnonzero((innermost[:-1] >= 0) & (np.diff(bound) > 0))
    frame, exact = innermost[rows], np.zeros(len(rows), np.int64)
    return merged_spans(track[frame], bound[rows], bound[rows + 1], stack[frame], exact)


def merged_spans(track: Array, start_ns: Array, end_ns: Array, stack: Array, resolution_ns: Array) -> Table:
    """SCRIPT_SPANS by start, of pieces (one or more) in the order of each track: touching ones of a stack are one."""
    is_new = np.ones(len(stack), bool)
    is_new[1:] = (track[1:] != track[:-1]) | (stack[1:] != stack[:-1]) | (start_ns[1:] != end_ns[:-1])
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(stack)) - 1
    columns = {"start_ns": start_ns[first], "end_ns": end_ns[last], "track": track[first], "stack": stack[first]}
    table = SCRIPT_SPANS.table({**columns, "resolution_ns": resolution_ns[first]})
    return table.take(np.argsort(table["start_ns"], kind="stable"))

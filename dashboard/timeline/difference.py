"""Two runs one above the other, aligned by step: slices that became longer or shorter, and those in only one run.

Steps are spaced by the longest one of both runs. Slices are matched by rank, step, kind of lane and name, and compared
by total time, as one call may have become two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddprof.dashboard.timeline.categories import CATEGORIES, CATEGORY
from ddprof.dashboard.timeline.index import RankSteps, SliceIndex, Slices
from ddprof.dashboard.timeline.inspect import shown_slice
from ddprof.dashboard.timeline.lanes import KINDS, Lane, Timeline
from ddprof.errors import UsageError
from ddprof.findings import CRITICAL_SHARE
from ddprof.tables import NULL, Array
from ddprof.units import format_share, format_us

UNCHANGED_SHARE = 0.01  # of the step: as pale as a heat map draws it; full colour from CRITICAL_SHARE on
SIDES = ("before", "after")


@dataclass(frozen=True)
class _Part:
    """The slices of one lane inside the steps, in display time."""

    lane: Lane
    side: int
    slices: Slices
    step: Array


def difference(before: Timeline, after: Timeline) -> Timeline:
    """Both runs in one timeline, the later one above. `ref` of a slice: the change of its length, ns; NULL where only
    one run has it. Raises UsageError, in words, where nothing can be compared.
    """
    runs = (before, after)
    ranks = sorted(set.intersection(*({of.rank for of in run.steps} for run in runs)))
    if not ranks:
        raise UsageError("no rank is in both runs: there is nothing to compare")
    steps = tuple([next(of for of in run.steps if of.rank == rank) for rank in ranks] for run in runs)
    count = min(len(of.number) for side in steps for of in side)
    if not count:
        raise UsageError("no step is marked on every rank of both runs: there is nothing to align")
    slot_ns = max(int((of.end_ns - of.start_ns)[:count].max()) for side in steps for of in side)
    names = {name: code for code, name in enumerate(dict.fromkeys((*before.names, *after.names)))}
    lanes: list[Lane] = []
    slices: list[Slices] = []
    for at in range(len(ranks)):
        parts = [p for side in (0, 1) for p in _parts(runs[side], side, steps[side][at], names, slot_ns, count)]
        parts.sort(key=lambda part: (KINDS.index(part.lane.kind), -part.side))
        length_ns = (steps[0][at].end_ns - steps[0][at].start_ns)[:count]
        for part, marked in zip(parts, _marked(parts, len(names), length_ns), strict=True):
            lanes.append(replace(part.lane, label=f"{SIDES[part.side]}: {part.lane.label}", slices=len(marked)))
            slices.append(marked)
    number = np.arange(count)
    start = number * slot_ns
    longest = [np.maximum(*((of.end_ns - of.start_ns)[:count] for of in pair)) for pair in zip(*steps, strict=True)]
    placed = [RankSteps(r, number, number, start, start + ns) for r, ns in zip(ranks, longest, strict=True)]
    return Timeline(tuple(lanes), tuple(names), SliceIndex(slices, len(CATEGORIES)), tuple(placed))


def _parts(run: Timeline, side: int, steps: RankSteps, names: dict[str, int], slot_ns: int, count: int) -> list[_Part]:
    codes = np.array([names[name] for name in run.names] or [0], np.int64)
    parts = []
    for number, lane in enumerate(run.lanes):
        groups = run.index.groups_of(np.array([number])) if lane.rank == steps.rank else np.empty(0, np.int64)
        if not len(groups):
            continue
        rows = run.index.rows_of(groups)
        start = run.index.start_ns(rows)
        order = np.argsort(start, kind="stable")
        rows, start = rows[order], start[order]
        step = np.searchsorted(steps.start_ns[:count], start, side="right") - 1
        inside = np.flatnonzero((step >= 0) & (start < steps.end_ns[np.maximum(step, 0)]))
        rows, start, step = rows[inside], start[inside], step[inside]
        since = start - steps.start_ns[step]
        length = np.minimum(run.index.dur_ns(rows), slot_ns - since)
        begin = step * slot_ns + since
        # Steps are matched by their place: their names hold the number that each run marks them with.
        name = np.full(len(rows), -1) if lane.kind == "steps" else codes[run.index.name[rows]]
        nothing = np.zeros(len(rows), np.int64)
        shown = codes[run.index.name[rows]]
        parts.append(_Part(lane, side, Slices(begin, begin + length, name, shown, nothing), step))
    return parts


def _marked(parts: list[_Part], names: int, length_ns: Array) -> list[Slices]:
    """The parts of one rank with the category and the change of each slice."""
    count = len(length_ns)
    keys = [
        ((KINDS.index(p.lane.kind) * (names + 1) + p.slices.category + 1) * count + p.step).astype(np.int64)
        for p in parts
    ]
    joined = np.concatenate(keys) if keys else np.empty(0, np.int64)
    unique, place = np.unique(joined, return_inverse=True)
    lengths = np.concatenate([p.slices.end_ns - p.slices.start_ns for p in parts] or [joined])
    side = np.repeat([p.side for p in parts], [len(k) for k in keys])
    total, calls = np.zeros((2, len(unique)), np.int64), np.zeros((2, len(unique)), np.int64)
    np.add.at(total, (side, place), lengths)
    np.add.at(calls, (side, place), 1)
    change = total[1] - total[0]
    share = change / np.maximum(1, length_ns[unique % count])
    edges = (-CRITICAL_SHARE, -UNCHANGED_SHARE, UNCHANGED_SHARE, CRITICAL_SHARE)
    levels = ("shrank_much", "shrank", "unchanged", "grew", "grew_much")
    category = np.array([CATEGORY[level] for level in levels])[np.digitize(share, edges)]
    alone = (calls == 0).any(axis=0)
    category, change = np.where(alone, CATEGORY["only_here"], category), np.where(alone, NULL, change)
    cuts = np.cumsum([len(k) for k in keys])[:-1]
    return [
        Slices(p.slices.start_ns, p.slices.end_ns, category[at], p.slices.name, change[at])
        for p, at in zip(parts, np.split(place, cuts), strict=True)
    ]


def difference_details(timeline: Timeline, row: int) -> dict[str, Any]:
    """One slice, and the difference of all slices of its name in the step. Raises UsageError where there is none."""
    lane, shown = shown_slice(timeline, row)
    start, change = int(timeline.index.start_ns(np.array([row]))[0]), int(timeline.index.ref[row])
    steps = next(of for of in timeline.steps if of.rank == lane.rank)
    step = int(np.searchsorted(steps.start_ns, start, side="right")) - 1
    length = int(steps.end_ns[step] - steps.start_ns[step])
    words = f"in step {step}, {format_us((start - int(steps.start_ns[step])) / 1e3)} after its start"
    sign = "longer" if change >= 0 else "shorter"
    amount = f"{format_us(abs(change) / 1e3)} ({format_share(abs(change) / length)})"
    summary = f"all of this name in the step: {amount} {sign} after"
    summary = "only here: the other run has none of this name in the step" if change == NULL else summary
    return shown | {"facts": [words, summary], "members": []}

"""Slices of all lanes, sorted, with prefix sums: exact busy time of any window in two look-ups per (lane, category).

Cost of a view depends on the lanes and bins asked for, not on the number of slices (see benchmarks/bench_timeline.py).
Slices are disjoint within a lane. Times are int64 ns since the start of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.tables import Array


@dataclass(frozen=True)
class Slices:
    """The slices of one lane: disjoint, sorted by start. The lane's owner defines `name` and `ref`."""

    start_ns: Array
    end_ns: Array
    category: Array
    name: Array
    ref: Array

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class WindowSlices:
    """Exact slices of a window, lane by lane: `row` is the permanent identity of a slice in the index."""

    row: Array
    lane: Array
    category: Array
    start_ns: Array
    dur_ns: Array
    name: Array


class SliceIndex:
    """All slices in one array sorted by (lane, category, start). A group is a (lane, category) pair."""

    def __init__(self, lanes: Sequence[Slices], categories: int) -> None:
        ends = [int(s.end_ns.max()) for s in lanes if len(s)]
        starts = [int(s.start_ns[0]) for s in lanes if len(s)]
        self.lo_ns, self.hi_ns = min(starts, default=0), max(ends, default=1)
        self.lanes, self.categories = len(lanes), categories
        self._span = self.hi_ns - self.lo_ns + 2
        orders = [np.argsort(s.category, kind="stable") for s in lanes]
        counts = [np.bincount(s.category, minlength=categories) for s in lanes]
        self.counts = np.array(counts, np.int64).reshape(-1)
        self.first = np.concatenate(([0], np.cumsum(self.counts)))
        self.name = _joined([s.name[o] for s, o in zip(lanes, orders, strict=True)], np.int32)
        self.ref = _joined([s.ref[o] for s, o in zip(lanes, orders, strict=True)], np.int64)
        start = _joined([s.start_ns[o] for s, o in zip(lanes, orders, strict=True)], np.int64)
        length = _joined([(s.end_ns - s.start_ns)[o] for s, o in zip(lanes, orders, strict=True)], np.int64)
        self.total = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))
        # One sorted key for all groups: a single searchsorted answers every lane and category of a view at once.
        group = np.repeat(np.arange(len(self.counts)), self.counts)
        self.key = start - self.lo_ns + group * self._span

    def __len__(self) -> int:
        return len(self.key)

    @property
    def held_bytes(self) -> int:
        """Memory of the arrays."""
        return sum(a.nbytes for a in (self.counts, self.first, self.name, self.ref, self.total, self.key))

    def groups_of(self, lanes: Array) -> Array:
        """The non-empty groups of some lanes, in lane order."""
        wanted = (lanes[:, None] * self.categories + np.arange(self.categories)).reshape(-1)
        return np.asarray(wanted[self.counts[wanted] > 0])

    def rows_of(self, groups: Array) -> Array:
        """All rows of some groups, in order."""
        return np.concatenate([np.arange(self.first[g], self.first[g + 1]) for g in groups.tolist()])

    def start_ns(self, row: Array) -> Array:
        """Starts of slices."""
        return np.asarray(self.key[row] - self.group(row) * self._span + self.lo_ns)

    def dur_ns(self, row: Array) -> Array:
        """Durations of slices."""
        return np.asarray(self.total[row + 1] - self.total[row])

    def group(self, row: Array) -> Array:
        """Group of each slice."""
        return np.searchsorted(self.first, row, side="right") - 1

    def covered(self, groups: Array, at_ns: Array) -> Array:
        """Busy ns of each group before each instant, shape (groups, instants). `at_ns`: shared, or a row per group."""
        at = np.clip(at_ns - self.lo_ns, 0, self._span - 1)
        row = np.searchsorted(self.key, (groups[:, None] * self._span + at).reshape(-1), side="right") - 1
        row = row.reshape(len(groups), at.shape[-1])
        first = self.first[groups][:, None]
        before = row < first
        row = np.where(before, first, row)
        inside = at - (self.key[row] - groups[:, None] * self._span)
        busy = self.total[row] - self.total[first] + np.minimum(inside, self.dur_ns(row))
        return np.where(before, 0, busy)

    def busy(self, groups: Array, edges_ns: Array) -> Array:
        """Busy ns of each group between consecutive edges, shape (groups, bins). Edges: shared, or a row per group."""
        return np.diff(self.covered(groups, edges_ns), axis=1)

    def window(self, groups: Array, lo_ns: int | Array, hi_ns: int | Array) -> tuple[Array, Array]:
        """Range of rows of each group that overlap [lo, hi): first row, row after the last. Windows may differ."""
        base = groups * self._span
        lo = np.clip(lo_ns - self.lo_ns, 0, self._span - 1)
        hi = np.clip(hi_ns - self.lo_ns, 0, self._span - 1)
        first = np.searchsorted(self.key, base + lo, side="right") - 1
        first = np.maximum(first, self.first[groups])
        ended = self.key[first] - base + self.dur_ns(first) <= lo
        first = first + (ended & (self.key[first] - base < lo))
        last = np.searchsorted(self.key, base + hi, side="left")
        return first, np.maximum(np.minimum(last, self.first[groups + 1]), first)

    def rows(self, groups: Array, lo_ns: int | Array, hi_ns: int | Array) -> WindowSlices:
        """The slices of some groups that overlap [lo, hi), which may differ by group."""
        first, last = self.window(groups, lo_ns, hi_ns)
        count = last - first
        row = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        group = np.repeat(groups, count)
        return WindowSlices(
            row,
            group // self.categories,
            group % self.categories,
            self.key[row] - group * self._span + self.lo_ns,
            self.dur_ns(row),
            self.name[row],
        )


def _joined(parts: Sequence[Array], dtype: type) -> Array:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


# Steps on the timeline: the start and end of a numbered step on each rank, as the pages count steps.


@dataclass(frozen=True)
class RankSteps:
    """The job's steps on one rank in time order, ns since the run's start. `number`: on the pages, from 0; `marked`: in
    the trace.
    """

    rank: int
    number: Array
    marked: Array
    start_ns: Array
    end_ns: Array


def steps_of(job: JobFacts) -> tuple[RankSteps, ...]:
    """The steps of every rank."""
    by_rank = []
    for rank, facts, rows, shift_ns in zip(job.rank_ids, job.ranks, job.step_rows, job.shifts_ns, strict=True):
        number = np.flatnonzero(rows >= 0)
        start_ns, end_ns = (bound[rows[number]] - shift_ns for bound in facts.steps.bounds)
        by_rank.append(RankSteps(rank, number, job.step_numbers[number], start_ns, end_ns))
    return tuple(by_rank)


def step_count(steps: Sequence[RankSteps]) -> int:
    """Number of the job's steps, from 0 to the last that one of these ranks has."""
    return max((int(of.number[-1]) + 1 for of in steps if len(of.number)), default=0)


def step_words(number: int, marked: int) -> str:
    """The step's number on the pages (negative: none), with its number in the trace where they differ."""
    counted = f"step {number}" if number >= 0 else "step of few ranks"
    return counted if number == marked else f"{counted} (marked {marked})"


def one_step(steps: Sequence[RankSteps], number: int) -> dict[str, Any]:
    """The step of a number on every rank that has it: [rank, start, end] in us since the run's start."""
    having = [(of, row) for of in steps for row in np.flatnonzero(of.number == number).tolist()]
    return {
        "number": number,
        "words": step_words(number, int(having[0][0].marked[having[0][1]]) if having else number),
        "ranks": [[of.rank, float(of.start_ns[row]) / 1e3, float(of.end_ns[row]) / 1e3] for of, row in having],
    }

"""Arithmetic between the job's tables and the pages' charts: per rank, per step, per group.

No threshold, no verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import UNKNOWN_ROLE, JobFacts
from ddprof.analyzers.job.traffic.cost import bus_factor
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.causes import CAUSE_IDS, CAUSES
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.timeline.index import step_words
from ddprof.findings import CRITICAL_SHARE
from ddprof.tables import NULL, Array

MAX_LINES = 32  # ranks in one picture; its table has all of them
FEW_LINES = 16  # each of them is drawn
APART = 5.0  # times the median distance to the median line: 1 in 1,000 of normally spread lines is farther off
LEAST_MS = 0.1  # below it times are shown in µs
DECADES_US = (1, 10, 100, 1_000, 10_000, 100_000)
MAX_STEPS_SHOWN = 200  # in one chart


def condensed(values: Array, names: list[str]) -> tuple[Array, list[str]]:
    """Named rows of (rows, columns) for a chart: above `FEW_LINES` at most `MAX_LINES`, those far from the median row,
    and a median row for the rest. NaN is no difference.
    """
    if len(values) <= FEW_LINES:
        return values, names
    median = typical_us(values.T)
    filled = np.where(np.isfinite(values), values, median)
    distance = np.nan_to_num(np.abs(filled - median)).max(axis=1)
    farthest = np.argsort(-distance, kind="stable")[:MAX_LINES]
    apart = np.sort(farthest[distance[farthest] > APART * float(np.median(distance))])
    others = np.setdiff1d(np.arange(len(values)), apart)
    rest = f"{len(others)} other ranks (median)"
    return np.vstack([values[apart], np.median(filled[others], axis=0)]), [*(names[i] for i in apart), rest]


def readable_times(times_ms: Array, step_ms: float) -> tuple[Array, str, float]:
    """Times in a chart's unit (µs where none reaches 0.1 ms, else ms), and the critical time in such a step."""
    finite = np.abs(times_ms[np.isfinite(times_ms)])
    scale, unit = (1e3, "µs") if finite.max(initial=0.0) < LEAST_MS else (1.0, "ms")
    return times_ms * scale, unit, CRITICAL_SHARE * step_ms * scale


def step_name(job: JobFacts, step: int) -> str:
    """A step in words, with its number in the traces where the pages count otherwise: "step 3 (marked 9)"."""
    return step_words(step, int(job.step_numbers[step]))


def rank_steps_us(job: JobFacts) -> Array:
    """Wall time of each step on each rank, us, shape (ranks, steps); NaN where the rank lacks the step."""
    walls = [(f.steps["end_ns"] - f.steps["start_ns"])[of] for f, of in zip(job.ranks, job.step_rows, strict=True)]
    return np.where(job.step_rows >= 0, np.array(walls) / 1e3, np.nan)


def _by_step(job: JobFacts, places: tuple[Array, ...], amount: Array, *more: int) -> Array:
    """Sums of amounts, each of a rank and a row of its STEPS, shape (ranks, steps, *more); NaN where it lacks the step.

    `places`: rank and row of each amount, and its places in `more`.
    """
    total = np.zeros((len(job.ranks), max(len(facts.steps) for facts in job.ranks), *more))
    np.add.at(total, places, amount)
    rows = job.step_rows.reshape(*job.step_rows.shape, *(1 for _ in more))
    return np.where(rows >= 0, np.take_along_axis(total, rows, axis=1), np.nan)


def lateness_us(job: JobFacts) -> Array:
    """Mean lateness at collectives against the mean of the other members, us, shape (ranks, steps); NaN without any."""
    members = job.members
    offset = np.array([job.clock.offset_ns(p) for p in range(len(job.ranks))], np.int64)
    # Subtracting the first arrival keeps the mean exact: unix nanoseconds do not fit a float.
    start = members["start_ns"] - offset[members["rank"]] if len(members) else np.empty(0, np.int64)
    start = start - start.min(initial=np.iinfo(np.int64).max) if len(start) else start
    seen = np.bincount(members["instance"], minlength=len(job.instances))
    mean = np.bincount(members["instance"], weights=start, minlength=len(job.instances)) / np.maximum(seen, 1)
    late = start - mean[members["instance"]]
    size = seen[members["instance"]]
    late *= size / np.maximum(size - 1, 1)  # off the mean of all members; of two, the reference is the other
    step = np.full(len(members), -1)
    for position, facts in enumerate(job.ranks):
        of_rank = np.flatnonzero((members["rank"] == position) & (size > 1))
        step[of_rank] = intervals.row_at(facts.steps.bounds, members["start_ns"][of_rank])
    inside = step >= 0
    places = members["rank"][inside], step[inside]
    count = _by_step(job, places, np.ones(int(inside.sum())))
    return _by_step(job, places, late[inside]) / np.where(count > 0, count, np.nan) / 1e3


def typical_us(by_step: Array) -> Array:
    """Median over the known steps of each rank, from (ranks, steps); NaN where none is known."""
    # nanmedian warns on rows without any value; those are ranks that took part in nothing.
    finite = (row[np.isfinite(row)] for row in by_step)
    return np.array([np.median(row) if len(row) else np.nan for row in finite])


def causes_by_step_us(job: JobFacts) -> Array:
    """Time by cause per rank and step, us, shape (ranks, steps, causes); NaN where the rank lacks the step."""
    ledger = job.ledger
    return _by_step(job, (ledger["rank"], ledger["step"], ledger["cause"]), ledger["dur_ns"] / 1e3, len(CAUSES))


@dataclass(frozen=True)
class GroupTime:
    """Communication of one group inside the steps, per step and member: waiting for the last, and moving data.

    Both hold what compute hides. `total_bytes`: None where no size was recorded.
    """

    name: str
    size: int
    calls: float
    wait_us: float
    transfer_us: float
    total_bytes: float | None


def group_times(job: JobFacts) -> list[GroupTime]:
    """All groups that communicate inside the steps, longest first."""
    instances, own_steps = job.instances, np.array([len(facts.steps) for facts in job.ranks])
    members = job.members.take(np.flatnonzero(_inside_steps(job)))
    group = instances["group"][members["instance"]] if len(members) else np.empty(0, np.int64)
    times = []
    for row in np.unique(group).tolist():
        is_member = group == row
        held = own_steps[np.unique(members["rank"][is_member])]  # a file may hold fewer steps than the others
        steps = float(held.mean())
        of_group = np.unique(members["instance"][is_member])
        size = instances["size_bytes"][of_group]
        scale = 1e3 * float(held.sum())
        name = str(job.groups["name"][row]) or str(row)
        name = f"group {name}" if name.isdigit() else name  # torch numbers its groups
        role = str(job.groups["role"][row])
        times.append(
            GroupTime(
                name if not role or role.startswith(UNKNOWN_ROLE) else f"{name} ({role})",
                int(job.groups["size"][row]),
                len(of_group) / steps,
                float((members["ready_ns"] - members["start_ns"])[is_member].sum()) / scale,
                float((members["end_ns"] - members["ready_ns"])[is_member].sum()) / scale,
                float(size[size != NULL].sum()) / steps if (size != NULL).any() else None,
            )
        )
    return sorted(times, key=lambda g: -(g.wait_us + g.transfer_us))


def _inside_steps(job: JobFacts) -> Array:
    """Mask of members of collectives that run while their rank is in a step, shape (members,)."""
    members = job.members
    inside = np.zeros(len(members), bool)
    for position, facts in enumerate(job.ranks):
        of_rank = members["rank"] == position
        first, last = facts.steps["start_ns"][0], facts.steps["end_ns"][-1]
        inside[of_rank] = (members["end_ns"][of_rank] > first) & (members["start_ns"][of_rank] < last)
    return inside


def bandwidths(traffic: Traffic) -> tuple[Array, Array]:
    """Message sizes (bytes) and bus bandwidths (GB/s) of the matched instances whose size is known."""
    factor = bus_factor(traffic.op, max(traffic.group_size, 2)) or 1.0
    usable = (traffic.sizes_bytes > 0) & (traffic.times_us > 0)
    sizes = traffic.sizes_bytes[usable]
    return sizes, sizes / traffic.times_us[usable] / 1e3 * factor


def gap_histogram(ranks: list[RankFacts]) -> dict[str, Array]:
    """Idle time by length of the gap: cause -> us per step and rank in each decade, shape (decades + 1,)."""
    by_cause: dict[str, Array] = {}
    edges = np.array(DECADES_US) * 1e3
    for facts in ranks:
        gaps = facts.gaps
        length = gaps["end_ns"] - gaps["start_ns"]
        scale = 1e3 * len(facts.steps) * len(ranks)
        for cause in np.unique(gaps["cause"]).tolist():
            of_cause = gaps["cause"] == cause
            bins = np.searchsorted(edges, length[of_cause], side="right")
            time = np.bincount(bins, weights=length[of_cause], minlength=len(edges) + 1) / scale
            by_cause[CAUSE_IDS[cause]] = by_cause.get(CAUSE_IDS[cause], np.zeros(len(edges) + 1)) + time
    return by_cause


def launch_delays(ranks: list[RankFacts]) -> Array:
    """Device operations by time from launch to start: counts per decade, shape (decades + 1,)."""
    edges = np.array(DECADES_US) * 1e3
    counts = np.zeros(len(edges) + 1, np.int64)
    for facts in ranks:
        ops = facts.device_ops
        has_launch = ops["launch_ns"] != NULL
        delay = (ops["start_ns"] - ops["launch_ns"])[has_launch]
        counts += np.bincount(np.searchsorted(edges, delay, side="right"), minlength=len(counts))
    return counts


def decade_words() -> list[str]:
    """Labels of the decades."""
    names = ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]
    return [f"under {names[0]}", *(f"{a} to {b}" for a, b in itertools.pairwise(names)), f"over {names[-1]}"]


def positions(view: View) -> list[int]:
    """Positions of the ranks that pass the filter."""
    return [p for p, rank in enumerate(view.opened.job.rank_ids) if view.shows(rank)]


def rank_names(view: View, of: Iterable[int]) -> list[str]:
    """Names of ranks by position: "rank 3"."""
    return [f"rank {view.opened.job.rank_ids[p]}" for p in of]


def steps(view: View) -> list[int]:
    """The first MAX_STEPS_SHOWN steps that pass the filter."""
    return [s for s in range(view.opened.step_count) if view.shows_step(s)][:MAX_STEPS_SHOWN]

"""Blame: every exposed wait is charged to the rank that came late, and to what made it late.

From the last instant at which both ranks were released together to their arrivals, the late rank's timeline is longer
than the victim's by exactly the wait. What the late rank spent more time on than the victim is the cause (Scalasca's
delay analysis). If that is waiting for a third rank in another group, the charge passes on to the culprit of that wait,
and so on to the first cause. Charged time summed over culprits and causes equals the time waited, exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.matching import step_of
from ddprof.analyzers.job.model import BLAME, Clock
from ddprof.analyzers.job.waiting.members import members_of
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

Mix = dict[tuple[int, int], float]  # (culprit position, cause) -> ns
_History = tuple[list[int], list[int]]  # of a rank that waited: ends of the pieces, and their numbers
_WAIT = CAUSE_CODE["comm_wait"]


@dataclass(frozen=True)
class _Rank:
    """One rank, prepared for window queries (own clock)."""

    facts: RankFacts
    causes: Mapping[str, Intervals]
    instance: Array  # of each membership, sorted by end
    end_ns: Array
    released: Array  # bool: no compute runs when the operation ends, so that what follows waited for it


@dataclass(frozen=True)
class _Waits:
    """Pieces of exposed waiting of all ranks, in the order of the reference clock."""

    victim: Array
    instance: Array
    arrival_ns: Array  # victim's own clock: start of the operation
    late_arrival_ns: Array  # late rank's own clock
    late: Array
    step: Array
    dur_ns: Array
    until_ns: Array  # victim's own clock: end of the piece


def charge(
    ranks: Sequence[RankFacts],
    instances: Table,
    members: Table,
    clock: Clock,
    causes: Sequence[Mapping[str, Intervals]],
) -> Table:
    """BLAME for all exposed waits of the job. `causes`: the intervals of each rank by cause."""
    prepared = [_prepare(p, facts, members, causes[p]) for p, facts in enumerate(ranks)]
    waits = _waits(ranks, instances, members, clock, prepared)
    if not len(waits.victim):
        return BLAME.empty()
    victim_ref, late_ref = _references(prepared, waits, clock)
    excess = _excess(prepared, waits, victim_ref, late_ref)
    mixes: list[Mix] = []
    history: list[_History] = [([], []) for _ in ranks]
    columns = (waits.victim, waits.late, waits.dur_ns, waits.until_ns, late_ref, waits.late_arrival_ns)
    for victim, late, dur, until, lo, hi, spent in zip(*(c.tolist() for c in columns), excess.tolist(), strict=True):
        mix = _resolve(late, float(dur), spent, (lo, hi), history, mixes)
        ends, numbers = history[victim]
        ends.append(until)
        numbers.append(len(mixes))
        mixes.append(mix)
    return _table(waits, mixes)


def _prepare(position: int, facts: RankFacts, members: Table, causes: Mapping[str, Intervals]) -> _Rank:
    mine = members_of(members, position)
    mine = mine[np.argsort(members["end_ns"][mine], kind="stable")]
    end = members["end_ns"][mine]
    released = intervals.overlap(causes["compute"], end - 1, end) == 0
    return _Rank(facts, causes, members["instance"][mine], end, released)


def _waits(
    ranks: Sequence[RankFacts], instances: Table, members: Table, clock: Clock, prepared: Sequence[_Rank]
) -> _Waits:
    columns: list[dict[str, Array]] = []
    for position, facts in enumerate(ranks):
        if not len(facts.exposed) or not len(facts.steps):
            continue
        owner = facts.exposed
        start, end, row, _ = intervals.intersect_rows(
            (owner["start_ns"], owner["end_ns"]), prepared[position].causes["comm_wait"]
        )
        # A kernel may serve several instances (coalesced messages): it waited for the one whose partner came last.
        mine = members_of(members, position)
        order = mine[np.lexsort((members["ready_ns"][mine], members["comm"][mine]))]
        at = np.searchsorted(members["comm"][order], owner["comm"][row], side="right") - 1
        member = order[at]
        step = step_of(facts, start)
        keep = (step >= 0) & (step < len(facts.steps))
        columns.append(
            {
                "victim": np.full(keep.sum(), position),
                "instance": members["instance"][member][keep],
                "arrival": members["start_ns"][member][keep],
                "step": step[keep],
                "dur": (end - start)[keep],
                "until": end[keep],
            }
        )
    if not columns:
        none = np.empty(0, np.int64)
        return _Waits(none, none, none, none, none, none, none, none)
    merged = {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}
    offset = np.array([clock.offset_ns(p) for p in range(len(ranks))])
    order = np.argsort(merged["until"] - offset[merged["victim"]], kind="stable")
    merged = {name: values[order] for name, values in merged.items()}
    late = instances["late"][merged["instance"]]
    return _Waits(
        merged["victim"],
        merged["instance"],
        merged["arrival"],
        _arrival_of(late, merged["instance"], members),
        late,
        merged["step"],
        merged["dur"],
        merged["until"],
    )


def _arrival_of(late: Array, instance: Array, members: Table) -> Array:
    order = np.lexsort((members["rank"], members["instance"]))
    width = int(members["rank"].max(initial=0)) + 2
    key = members["instance"][order] * width + members["rank"][order]
    at = np.searchsorted(key, instance * width + np.where(late == NULL, 0, late))
    at = np.minimum(at, len(key) - 1)
    return np.where(late == NULL, NULL, members["start_ns"][order][at])


def _references(prepared: Sequence[_Rank], waits: _Waits, clock: Clock) -> tuple[Array, Array]:
    """When victim and late rank of each piece were last released together, each on its own clock; shape (pieces,)."""
    victim_ref = np.zeros(len(waits.victim), np.int64)
    late_ref = np.zeros(len(waits.victim), np.int64)
    origin = max(
        int(r.facts.steps["start_ns"][0]) - clock.offset_ns(p) for p, r in enumerate(prepared) if len(r.facts.steps)
    )
    pair = waits.victim * len(prepared) + np.where(waits.late == NULL, waits.victim, waits.late)
    by_pair = np.argsort(pair, kind="stable")
    for mine in np.split(by_pair, np.flatnonzero(np.diff(pair[by_pair])) + 1):
        v, late = divmod(int(pair[mine[0]]), len(prepared))
        a, b = prepared[v], prepared[late]
        _, at_a, at_b = np.intersect1d(a.instance, b.instance, return_indices=True)
        both = a.released[at_a] & b.released[at_b]
        at_a, at_b = at_a[both], at_b[both]
        order = np.argsort(a.end_ns[at_a], kind="stable")
        ends_a, ends_b = a.end_ns[at_a][order], b.end_ns[at_b][order]
        ends_a = np.concatenate(([origin + clock.offset_ns(v)], ends_a))
        ends_b = np.concatenate(([origin + clock.offset_ns(late)], ends_b))
        at = np.maximum(np.searchsorted(ends_a[1:], waits.arrival_ns[mine], side="right"), 0)
        victim_ref[mine], late_ref[mine] = ends_a[at], ends_b[at]
    return victim_ref, late_ref


def _excess(prepared: Sequence[_Rank], waits: _Waits, victim_ref: Array, late_ref: Array) -> Array:
    """Time that the late rank spent beyond the victim's on each cause, its own waits included; ns, (pieces, causes)."""
    total = np.zeros((len(waits.victim), len(CAUSES)))
    known = np.flatnonzero(waits.late != NULL)
    for sign, who, lo, hi in (
        (1, waits.late, late_ref, waits.late_arrival_ns),
        (-1, waits.victim, victim_ref, waits.arrival_ns),
    ):
        by_rank = known[np.argsort(who[known], kind="stable")]
        limits = np.searchsorted(who[by_rank], np.arange(len(prepared) + 1))
        for rank, first, end in zip(prepared, limits[:-1].tolist(), limits[1:].tolist(), strict=True):
            rows = by_rank[first:end]
            for cause, spans in rank.causes.items() if len(rows) else ():
                if len(spans[0]):
                    spent = intervals.overlap(spans, lo[rows], np.maximum(hi[rows], lo[rows]))
                    total[rows, CAUSE_CODE[cause]] += sign * spent
    return np.maximum(total, 0.0)


def _resolve(
    late: int,
    duration: float,
    excess: list[float],
    window: tuple[int, int],
    history: Sequence[_History],
    mixes: Sequence[Mix],
) -> Mix:
    """Who is charged for a piece of waiting for the rank `late`, which it spent `excess` on more than the victim."""
    if late == NULL:
        return {(-1, CAUSE_CODE["unknown"]): duration}
    weights: Mix = {(late, cause): ns for cause, ns in enumerate(excess) if ns and cause != _WAIT}
    if excess[_WAIT] > 0:
        for key, value in _passed_on(late, window, history[late], mixes, excess[_WAIT]).items():
            weights[key] = weights.get(key, 0.0) + value
    total = sum(weights.values())
    if total <= 0:
        return {(late, CAUSE_CODE["unknown"]): duration}
    return {key: value / total * duration for key, value in weights.items()}


def _passed_on(late: int, window: tuple[int, int], history: _History, mixes: Sequence[Mix], amount: float) -> Mix:
    """Who was charged for the late rank's own waits since the common release, scaled to `amount` ns."""
    ends, numbers = history
    merged: Mix = {}
    for number in numbers[bisect_left(ends, window[0]) : bisect_left(ends, window[1] + 1)]:
        for key, value in mixes[number].items():
            merged[key] = merged.get(key, 0.0) + value
    total = sum(merged.values())
    if total <= 0:
        return {(late, CAUSE_CODE["unknown"]): amount}
    return {key: value / total * amount for key, value in merged.items()}


def _table(waits: _Waits, mixes: Sequence[Mix]) -> Table:
    """BLAME in whole ns, rounded so that the parts of each piece add up to its duration."""
    pieces, culprits, causes, durations = [], [], [], []
    for piece, mix in enumerate(mixes):
        left = int(waits.dur_ns[piece])
        items = sorted(mix.items(), key=lambda item: item[1])
        for index, ((culprit, cause), value) in enumerate(items):
            share = left if index == len(items) - 1 else min(left, round(value))
            left -= share
            pieces.append(piece)
            culprits.append(culprit if culprit >= 0 else NULL)
            causes.append(cause)
            durations.append(share)
    at = np.array(pieces, np.int64)
    return BLAME.table(
        {
            "instance": waits.instance[at],
            "victim": waits.victim[at],
            "culprit": culprits,
            "cause": causes,
            "step": waits.step[at],
            "dur_ns": durations,
        }
    )

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
_WAIT, _UNKNOWN = CAUSE_CODE["comm_wait"], CAUSE_CODE["unknown"]
NOBODY = -1  # culprit of a wait for a rank that was not traced


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


@dataclass(frozen=True)
class _Parts:
    """What pieces of waiting are charged to, in the order of the pieces."""

    piece: Array
    culprit: Array  # NOBODY: a rank that was not traced
    cause: Array
    ns: Array

    def with_mixes(self, mixes: Mapping[int, Mix]) -> _Parts:
        """These and the parts of other pieces."""
        piece = np.repeat(np.fromiter(mixes, np.int64), [len(mix) for mix in mixes.values()])
        keys = np.array([key for mix in mixes.values() for key in mix], np.int64)
        ns = np.array([value for mix in mixes.values() for value in mix.values()])
        both = np.append(self.piece, piece)
        order = np.argsort(both, kind="stable")
        culprit, cause = np.append(self.culprit, keys[:, 0]), np.append(self.cause, keys[:, 1])
        return _Parts(both[order], culprit[order], cause[order], np.append(self.ns, ns)[order])


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
    parts = _own_parts(waits, excess)
    passing = np.flatnonzero(excess[:, _WAIT] > 0)
    if len(passing):
        parts = parts.with_mixes(_passed_on(waits, excess, late_ref, passing, parts))
    return _table(waits, parts)


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
    total = np.zeros((len(CAUSES), len(waits.victim)))
    known = np.flatnonzero(waits.late != NULL)
    for sign, who, lo, hi in (
        (1, waits.late, late_ref, waits.late_arrival_ns),
        (-1, waits.victim, victim_ref, waits.arrival_ns),
    ):
        by_rank = known[np.argsort(who[known], kind="stable")]
        limits = np.searchsorted(who[by_rank], np.arange(len(prepared) + 1))
        for rank, first, end in zip(prepared, limits[:-1].tolist(), limits[1:].tolist(), strict=True):
            rows = by_rank[first:end]
            since, until = lo[rows], np.maximum(hi[rows], lo[rows])
            # Pieces of one wait, and victims of one late rank, ask for the same window one after another.
            differs = np.append(True, (since[1:] != since[:-1]) | (until[1:] != until[:-1]))[: len(rows)]
            window = np.cumsum(differs) - 1
            for cause, spans in rank.causes.items() if len(rows) else ():
                if len(spans[0]):
                    spent = intervals.overlap(spans, since[differs], until[differs])
                    total[CAUSE_CODE[cause], rows] += sign * spent[window]
    return np.maximum(total, 0.0).T


def _own_parts(waits: _Waits, excess: Array) -> _Parts:
    """Parts of the pieces whose late rank waited for nobody longer than the victim did."""
    total = np.zeros(len(excess))
    for column in excess.T:  # in order, so that every sum of parts is this one to the last bit
        total += column
    total[excess[:, _WAIT] > 0] = np.nan
    blank = np.flatnonzero(total <= 0)
    piece, cause = np.nonzero(excess * (total > 0)[:, None])
    ns = excess[piece, cause] / total[piece] * waits.dur_ns[piece]
    piece = np.append(piece, blank)
    order = np.argsort(piece, kind="stable")
    piece = piece[order]
    return _Parts(
        piece,
        np.where(waits.late == NULL, NOBODY, waits.late)[piece],
        np.append(cause, np.full(len(blank), _UNKNOWN))[order],
        np.append(ns, waits.dur_ns[blank].astype(float))[order],
    )


def _passed_on(waits: _Waits, excess: Array, late_ref: Array, passing: Array, own: _Parts) -> Mapping[int, Mix]:
    """Who is charged for the pieces `passing`, whose late rank waited longer than the victim since their common
    release: for that, who was charged for the late rank's own waits. In order, as one charge may pass on another.
    """
    ranks = int(max(waits.victim.max(), waits.late[passing].max())) + 1
    mixes: dict[int, Mix] = {}
    numbers = [np.flatnonzero(waits.victim == rank) for rank in range(ranks)]
    ends = [waits.until_ns[mine].tolist() for mine in numbers]
    begin = np.searchsorted(own.piece, np.arange(len(excess) + 1)).tolist()
    keys, values = list(zip(own.culprit.tolist(), own.cause.tolist(), strict=True)), own.ns.tolist()
    columns = (passing, waits.late[passing], late_ref[passing], waits.late_arrival_ns[passing], waits.dur_ns[passing])
    for piece, late, lo, hi, duration, spent in zip(
        *(c.tolist() for c in columns), excess[passing].tolist(), strict=True
    ):
        merged: Mix = {}
        waited = slice(bisect_left(ends[late], lo), bisect_left(ends[late], hi + 1))
        for number in numbers[late][waited].tolist():
            if number >= piece:
                break
            at = slice(begin[number], begin[number + 1])
            for key, value in mixes[number].items() if number in mixes else zip(keys[at], values[at], strict=True):
                merged[key] = merged.get(key, 0.0) + value
        weights: Mix = {(late, cause): ns for cause, ns in enumerate(spent) if ns and cause != _WAIT}
        total = sum(merged.values())
        passed = {key: value / total * spent[_WAIT] for key, value in merged.items()} if total > 0 else {}
        for key, value in (passed or {(late, _UNKNOWN): spent[_WAIT]}).items():
            weights[key] = weights.get(key, 0.0) + value
        total = sum(weights.values())
        mixes[piece] = {key: value / total * duration for key, value in weights.items()}
    return mixes


def _table(waits: _Waits, parts: _Parts) -> Table:
    """BLAME in whole ns, rounded so that the parts of each piece add up to its duration: the largest takes the rest."""
    order = np.lexsort((parts.ns, parts.piece))
    at, culprit = parts.piece[order], parts.culprit[order]
    ends = np.append(np.flatnonzero(np.diff(at)), len(at) - 1)
    before = np.append(0, np.cumsum(np.rint(parts.ns[order]).astype(np.int64)))
    first = np.append(0, ends[:-1] + 1)
    told = np.minimum(before[1:] - np.repeat(before[first], ends - first + 1), waits.dur_ns[at])
    told[ends] = waits.dur_ns[at[ends]]
    share = np.diff(told, prepend=0)
    share[first] = told[first]
    return BLAME.table(
        {
            "instance": waits.instance[at],
            "victim": waits.victim[at],
            "culprit": np.where(culprit == NOBODY, NULL, culprit),
            "cause": parts.cause[order],
            "step": waits.step[at],
            "dur_ns": share,
        }
    )

"""Blame: every exposed wait is charged to the rank that came late, and to what made it late.

From the last instant at which both ranks were released together to their arrivals, the late rank's timeline is longer
than the victim's by exactly the wait. What the late rank spent more time on than the victim is the cause (Scalasca's
delay analysis). If that is waiting for a third rank in another group, the charge passes on to the culprit of that wait,
and so on to the first cause. Charged time summed over culprits and causes equals the time waited, exactly.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.matching import step_of
from ddprof.analyzers.job.model import BLAME, Clock
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

Mix = dict[tuple[int, int], float]  # (culprit position, cause) -> ns
_WAIT, _UNKNOWN = CAUSE_CODE["comm_wait"], CAUSE_CODE["unknown"]
NOBODY = -1  # culprit of a wait for a rank that was not traced


class _Rank(Struct, frozen=True):
    """One rank, prepared for window queries (own clock)."""

    facts: RankFacts
    causes: Mapping[str, Intervals]
    instance: Array  # of each membership, sorted by end
    end_ns: Array
    released: Array  # bool: no compute runs when the operation ends, so that what follows waited for it


class _Waits(Struct, frozen=True):
    """Pieces of exposed waiting of all ranks, in the order of the reference clock."""

    victim: Array
    instance: Array
    arrival_ns: Array  # victim's own clock: start of the operation
    late_arrival_ns: Array  # late rank's own clock
    late: Array
    step: Array
    dur_ns: Array
    until_ns: Array  # victim's own clock: end of the piece


class _Excess(Struct, frozen=True):
    """Excess of a late rank over the victim in each cause, own waits included, per wait; a wait's pieces share it."""

    ns: Array  # (waits, causes)
    wait: Array  # of each piece


class _Parts(Struct, frozen=True):
    """Charges of the pieces of waiting, in the order of the pieces."""

    piece: Array
    culprit: Array  # NOBODY: a rank that was not traced
    cause: Array
    ns: Array

    def with_mixes(self, mixes: Mapping[int, Mix]) -> _Parts:
        """The charges with those of other pieces."""
        piece = np.repeat(np.fromiter(mixes, np.int32), [len(mix) for mix in mixes.values()])
        keys = np.array([key for mix in mixes.values() for key in mix], np.int32)
        ns = np.array([value for mix in mixes.values() for value in mix.values()])
        both = np.append(self.piece, piece)
        order = np.argsort(both, kind="stable")
        culprit, cause = np.append(self.culprit, keys[:, 0]), np.append(self.cause, keys[:, 1].astype(np.uint8))
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
    passing = np.flatnonzero((excess.ns[:, _WAIT] > 0)[excess.wait])
    if len(passing):
        parts = parts.with_mixes(_passed_on(waits, excess, late_ref, passing, parts))
    return _table(waits, parts)


def _prepare(position: int, facts: RankFacts, members: Table, causes: Mapping[str, Intervals]) -> _Rank:
    of_rank = members_of(members, position)
    of_rank = of_rank[np.argsort(members["end_ns"][of_rank], kind="stable")]
    end = members["end_ns"][of_rank]
    released = intervals.overlap(causes["compute"], end - 1, end) == 0
    return _Rank(facts, causes, members["instance"][of_rank], end, released)


def _waits(
    ranks: Sequence[RankFacts], instances: Table, members: Table, clock: Clock, prepared: Sequence[_Rank]
) -> _Waits:
    columns: list[dict[str, Array]] = []
    for position, facts in enumerate(ranks):
        if not len(facts.exposed):
            continue
        owner = facts.exposed
        start, end, row, _ = intervals.intersect_rows(owner.bounds, prepared[position].causes["comm_wait"])
        # A kernel may serve several instances (coalesced messages): it waited for the one whose partner came last.
        of_rank = members_of(members, position)
        order = of_rank[np.lexsort((members["ready_ns"][of_rank], members["comm"][of_rank]))]
        member = order[np.searchsorted(members["comm"][order], owner["comm"][row], side="right") - 1]
        step = step_of(facts.steps.bounds, start)
        keep = (step >= 0) & (step < len(facts.steps))
        columns.append(
            {
                "victim": np.full(keep.sum(), position, np.int32),
                "instance": members["instance"][member][keep],
                "arrival_ns": members["start_ns"][member][keep],
                "step": step[keep].astype(np.int32),
                "dur_ns": (end - start)[keep],
                "until_ns": end[keep],
                "moment": end[keep] - clock.offset_ns(position),
            }
        )
    if not columns:
        return _Waits(*(np.empty(0, np.int64) for _ in _Waits.__struct_fields__))
    order = np.argsort(np.concatenate([c.pop("moment") for c in columns]), kind="stable")
    merged = {name: np.concatenate([c.pop(name) for c in columns])[order] for name in [*columns[0]]}
    late = instances["late"][merged["instance"]]
    return _Waits(**merged, late=late, late_arrival_ns=_arrival_of(late, merged["instance"], members))


def _arrival_of(late: Array, instance: Array, members: Table) -> Array:
    order = np.lexsort((members["rank"], members["instance"]))
    width = int(members["rank"].max(initial=0)) + 2
    key = members["instance"][order] * width + members["rank"][order]
    at = np.minimum(np.searchsorted(key, instance * width + np.where(late == NULL, 0, late)), len(key) - 1)
    return np.where(late == NULL, NULL, members["start_ns"][order][at])


def _references(prepared: Sequence[_Rank], waits: _Waits, clock: Clock) -> tuple[Array, Array]:
    """Last common release of victim and late rank before each piece, each on its own clock; shape (pieces,)."""
    victim_ref, late_ref = np.zeros((2, len(waits.victim)), np.int64)
    origin = max(int(r.facts.steps["start_ns"][0]) - clock.offset_ns(p) for p, r in enumerate(prepared))
    pair = waits.victim * len(prepared) + np.where(waits.late == NULL, waits.victim, waits.late)
    by_pair = np.argsort(pair, kind="stable")
    for pieces in np.split(by_pair, np.flatnonzero(np.diff(pair[by_pair])) + 1):
        v, late = divmod(int(pair[pieces[0]]), len(prepared))
        a, b = prepared[v], prepared[late]
        _, at_a, at_b = np.intersect1d(a.instance, b.instance, return_indices=True)
        both = a.released[at_a] & b.released[at_b]
        at_a, at_b = at_a[both], at_b[both]
        order = np.argsort(a.end_ns[at_a], kind="stable")
        ends_a = np.append(origin + clock.offset_ns(v), a.end_ns[at_a][order])
        ends_b = np.append(origin + clock.offset_ns(late), b.end_ns[at_b][order])
        at = np.searchsorted(ends_a[1:], waits.arrival_ns[pieces], side="right")
        victim_ref[pieces], late_ref[pieces] = ends_a[at], ends_b[at]
    return victim_ref, late_ref


def _excess(prepared: Sequence[_Rank], waits: _Waits, victim_ref: Array, late_ref: Array) -> _Excess:
    windows = waits.late, late_ref, waits.late_arrival_ns, waits.victim, victim_ref, waits.arrival_ns
    in_order = np.argsort(waits.victim, kind="stable")  # the pieces of a wait follow one another
    wait = np.empty(len(in_order), np.int64)
    wait[in_order] = np.cumsum(_begins(*(column[in_order] for column in windows))) - 1
    first = np.empty(int(wait.max()) + 1, np.int64)
    first[wait[::-1]] = np.arange(len(wait))[::-1]
    late, late_ref, late_arrival, victim, victim_ref, arrival = (column[first] for column in windows)
    total = np.zeros((len(CAUSES), len(first)))
    charged = np.flatnonzero(late != NULL)
    for sign, who, lo, hi in ((1, late, late_ref, late_arrival), (-1, victim, victim_ref, arrival)):
        by_rank = charged[np.lexsort((hi[charged], who[charged]))]
        limits = np.searchsorted(who[by_rank], np.arange(len(prepared) + 1))
        for rank, begin, end in zip(prepared, limits[:-1].tolist(), limits[1:].tolist(), strict=True):
            rows = by_rank[begin:end]
            since, until = lo[rows], np.maximum(hi[rows], lo[rows])
            differs = _begins(since, until)  # victims of one late rank share its window
            window = np.cumsum(differs) - 1
            for cause, spans in rank.causes.items() if len(rows) else ():
                if len(spans[0]):
                    spent = intervals.overlap(spans, since[differs], until[differs])
                    total[CAUSE_CODE[cause], rows] += sign * spent[window]
    return _Excess(np.maximum(total, 0.0, out=total).T, wait)


def _begins(*columns: Array) -> Array:
    """Mask of rows that differ from the previous one in any column."""
    differs = np.ones(len(columns[0]), bool)
    differs[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return differs


def _own_parts(waits: _Waits, excess: _Excess) -> _Parts:
    """Parts of pieces whose late rank waited no longer than the victim did."""
    total = np.zeros(len(excess.ns))
    for column in excess.ns.T:  # in order, so that every sum of parts is this one to the last bit
        total += column
    total[excess.ns[:, _WAIT] > 0] = np.nan
    wait, cause = np.nonzero((excess.ns > 0) & (total > 0)[:, None])
    share = excess.ns[wait, cause] / total[wait]
    count = np.bincount(wait, minlength=len(total))
    of_piece = count[excess.wait]
    piece = np.repeat(np.arange(len(of_piece), dtype=np.int32), of_piece)
    part = np.arange(len(piece))
    part += np.repeat((np.cumsum(count) - count)[excess.wait] - (np.cumsum(of_piece) - of_piece), of_piece)
    ns = share[part] * waits.dur_ns[piece]
    blank = np.flatnonzero((total <= 0)[excess.wait])
    piece = np.append(piece, blank.astype(np.int32))
    order = np.argsort(piece, kind="stable")
    piece = piece[order]
    return _Parts(
        piece,
        np.where(waits.late == NULL, NOBODY, waits.late).astype(np.int32)[piece],
        np.append(cause.astype(np.uint8)[part], np.full(len(blank), _UNKNOWN, np.uint8))[order],
        np.append(ns, waits.dur_ns[blank].astype(float))[order],
    )


def _passed_on(waits: _Waits, excess: _Excess, late_ref: Array, passing: Array, parts: _Parts) -> Mapping[int, Mix]:
    """The ranks charged for the pieces `passing`, whose late rank itself waited longer than the victim since their
    common release: the charges of the late rank's own waits. In time order, as one charge may pass on another.
    """
    ranks = int(max(waits.victim.max(), waits.late[passing].max())) + 1
    mixes: dict[int, Mix] = {}
    numbers = [np.flatnonzero(waits.victim == rank) for rank in range(ranks)]
    late_rank = waits.late[passing]
    first, last = np.zeros((2, len(passing)), np.int64)  # waits of the late rank itself, among its numbers
    for rank, of_rank in enumerate(numbers):
        asks, ends = np.flatnonzero(late_rank == rank), waits.until_ns[of_rank]
        first[asks] = np.searchsorted(ends, late_ref[passing[asks]])
        last[asks] = np.searchsorted(ends, waits.late_arrival_ns[passing[asks]] + 1)
    begin = array("q", np.searchsorted(parts.piece, np.arange(len(excess.wait) + 1)).tobytes())
    pairs, pair = np.unique(parts.culprit * len(CAUSES) + parts.cause, return_inverse=True)
    each = [divmod(number, len(CAUSES)) for number in pairs.tolist()]
    keys, values = [each[number] for number in pair.tolist()], array("d", parts.ns.tobytes())
    of_waits, of_piece = np.unique(excess.wait[passing], return_inverse=True)
    by_cause = excess.ns[of_waits].tolist()
    columns = (passing, late_rank, first, last, waits.dur_ns[passing], of_piece)
    for piece, late, begun, ended, duration, wait in zip(*(column.tolist() for column in columns), strict=True):
        spent = by_cause[wait]
        merged: Mix = {}
        for number in numbers[late][begun:ended].tolist():
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
    """BLAME in whole ns. The parts of each piece add up to its duration: the largest part takes the rounding."""
    at, order = parts.piece, np.lexsort((parts.ns, parts.piece))  # pieces are in order already
    ends = np.append(np.flatnonzero(np.diff(at)), len(at) - 1)
    first = np.append(0, ends[:-1] + 1)
    until = np.cumsum(np.rint(parts.ns[order]), dtype=np.int64)  # in one array: there may be millions of parts
    until -= np.repeat(np.append(0, until[ends[:-1]]), ends - first + 1)
    np.minimum(until, waits.dur_ns[at], out=until)
    until[ends] = waits.dur_ns[at[ends]]
    share = np.diff(until, prepend=0)
    share[first] = until[first]
    culprit = parts.culprit[order]
    return BLAME.table(
        {
            "instance": waits.instance[at],
            "victim": waits.victim[at],
            "culprit": np.where(culprit == NOBODY, NULL, culprit.astype(np.int64)),
            "cause": parts.cause[order],
            "step": waits.step[at],
            "dur_ns": share,
        }
    )

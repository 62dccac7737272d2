"""Matching of what no number tells apart: collectives by their ends, and steps by the collectives that they issue.

Without sequence numbers the k-th collective of one file is taken for the k-th of another. One record that was lost, or
a window without marks that opened a step later, moves all that follow. But members leave a collective together: ends of
equal instances all differ by the difference of the two clocks, others do not. So files whose counts disagree are
shifted to where most ends meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.early import early_comms
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import OP_CODE, POINT_TO_POINT, ROOTED
from ddprof.analyzers.facts.stepping.steps import RESOLUTION_NS
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.clock import align
from ddprof.analyzers.job.groups import GroupKey
from ddprof.analyzers.job.matching import Matched, match
from ddprof.tables import NULL, Array

# Members of one collective leave it within the time of its last chunk, tens of microseconds at most.
TOGETHER_NS = 50_000
SPACING_SHARE = 0.05  # of the time from one collective to the next: a wrong neighbour meets by chance in one of ten
SAMPLES = 64  # collectives of a file that are laid over another; more find the same difference
ENOUGH = 0.5  # of those that the other file's window covers; fewer, and most of either file is missing or another run's
FEWEST = 3  # collectives that meet
NEARLY = 0.9  # of the most that meet: as good, where every step takes about the same time
WIDER = 3  # times: ends that meet over so much more time meet by the rhythm of the steps, not because they are one


class _Rows(Struct, frozen=True):
    """Collectives of one rank in one group, in order of launch; parallel arrays."""

    position: int
    row: Array  # of the rank's comms
    kind: Array  # same operation and bytes, but for an all-to-all, in which each member sends its own
    end_ns: Array
    step: Array  # number of the step that launched it; NULL outside and where steps have no numbers


def numbered_by_ends(ranks: Sequence[RankFacts], group_ids: Sequence[Array]) -> tuple[RankFacts, ...]:
    """The ranks with sequence numbers for the collectives of groups whose order is unreliable."""
    seq = [facts.comms["seq"].copy() for facts in ranks]
    is_renumbered = False
    for members in _groups(ranks, group_ids):
        if len(members) < 2 or _is_in_order(members):
            continue
        numbers = _numbers(members)
        for rows, number in zip(members, numbers or (), strict=bool(numbers)):
            seq[rows.position][rows.row] = number
            is_renumbered = True
    if not is_renumbered:
        return tuple(ranks)
    return tuple(replace(f, comms=f.comms.replace(seq=numbered)) for f, numbered in zip(ranks, seq, strict=True))


def _groups(ranks: Sequence[RankFacts], group_ids: Sequence[Array]) -> list[list[_Rows]]:
    """The collectives of each group in which a sequence number is missing, by member."""
    unordered = (*POINT_TO_POINT, *ROOTED)
    lacking = [ids[(f.comms["seq"] == NULL)] for f, ids in zip(ranks, group_ids, strict=True)]
    wanted = np.unique(np.concatenate(lacking)) if lacking else np.empty(0, np.int64)
    are_numbered = all(f.step_source == "profiler_step" for f in ranks)
    groups: dict[int, list[_Rows]] = {group: [] for group in wanted.tolist()}
    rooted = set()
    for position, facts in enumerate(ranks):
        comms = facts.comms
        issued = issued_ns(comms)
        step = intervals.row_at(facts.marks, issued)
        outside = early_comms(comms, facts.device_ops) | (not are_numbered)
        number = np.append(facts.steps["index"], NULL)[np.where(outside, -1, step)]  # row -1 is none
        for group in np.intersect1d(wanted, group_ids[position]).tolist():
            rows = np.flatnonzero((group_ids[position] == group) & ~np.isin(comms["op"], POINT_TO_POINT))
            rows = rows[np.argsort(issued[rows], kind="stable")]
            if np.isin(comms["op"][rows], unordered).any():
                rooted.add(group)
            size = np.where(comms["op"][rows] == OP_CODE["all_to_all"], -1, comms["size_bytes"][rows])
            kind = comms["op"][rows].astype(np.int64) * (1 << 48) + np.maximum(size, -1)
            if len(rows):
                groups[group].append(_Rows(position, rows, kind, comms["end_ns"][rows], number[rows]))
    return [members for group, members in groups.items() if group not in rooted]


def _is_in_order(members: Sequence[_Rows]) -> bool:
    """True where order identifies instances: of each kind equal counts in every common step, or in total, and most end
    together.
    """
    first = members[0]
    near_ns = _near_ns(first)
    for rows in members[1:]:
        common = _in_common(first, rows)
        if common is None:
            return False
        apart = rows.end_ns[common[1]] - first.end_ns[common[0]]
        if (np.abs(apart - np.median(apart)) > near_ns).mean() > 1 - NEARLY:
            return False
    return True


def _in_common(first: _Rows, rows: _Rows) -> tuple[Array, Array] | None:
    """Masks of the collectives of two members in their common steps, in all where they have none; None where those of
    one are not the other's, in this order.
    """
    common = np.intersect1d(rows.step, first.step)
    common = common[common != NULL]
    one, other = (np.isin(each.step, common) if len(common) else np.ones(len(each.row), bool) for each in (first, rows))
    is_same = one.sum() == other.sum() and np.array_equal(first.kind[one], rows.kind[other])
    return (one, other) if is_same and np.array_equal(first.step[one], rows.step[other]) else None


def _near_ns(rows: _Rows) -> int:
    """Tolerance within which ends are together: far below the time between two collectives."""
    if len(rows.end_ns) < 2:
        return RESOLUTION_NS
    spacing = float(np.median(np.diff(np.sort(rows.end_ns))))
    return int(min(TOGETHER_NS, max(RESOLUTION_NS, SPACING_SHARE * spacing)))


def _numbers(members: Sequence[_Rows]) -> list[Array] | None:
    """Number of each collective of each member, equal for one instance; None where some member fits nowhere."""
    longest = max(range(len(members)), key=lambda at: len(members[at].row))
    near_ns = _near_ns(members[longest])
    kind, end_ns = members[longest].kind, members[longest].end_ns  # of all that are known, on one clock
    numbers: list[Array] = []
    for at, rows in enumerate(members):
        if at == longest:
            numbers.append(np.arange(len(rows.row)))
            continue
        offset = _difference_ns(kind, end_ns, rows, near_ns)
        if offset is None:
            return None
        aligned = rows.end_ns - offset
        number = _nearest(kind, end_ns, rows.kind, aligned, 2 * near_ns)
        if (common := _in_common(members[longest], rows)) is not None:
            _pair_the_rest(number, members[longest], aligned, common)
        new = number < 0
        number[new] = len(kind) + np.arange(int(new.sum()))
        kind, end_ns = np.append(kind, rows.kind[new]), np.append(end_ns, aligned[new])
        numbers.append(number)
    return numbers


def _pair_the_rest(number: Array, first: _Rows, aligned_ns: Array, common: tuple[Array, Array]) -> None:
    """Fill in `number` where members of a whole recording left a collective apart, as over sockets or on one device:
    in one order on both (`common`), and once others tell the clocks' difference, two ends nearer than half the way to
    the next of the kind are one pair. The nearest of the kind need not be it, as some follow one another closely.
    """
    one, other = (np.flatnonzero(mask) for mask in common)
    kind, apart_ns = first.kind[one], np.abs(aligned_ns[other] - first.end_ns[one])
    is_rest = (number[other] < 0) & ~np.isin(one, number)
    for each in np.unique(kind[is_rest]).tolist():
        spacing_ns = np.diff(np.sort(first.end_ns[first.kind == each]))
        if len(spacing_ns):
            paired = is_rest & (kind == each) & (apart_ns <= np.median(spacing_ns) / 2)
            number[other[paired]] = one[paired]


def _difference_ns(kind: Array, end_ns: Array, rows: _Rows, near_ns: int) -> int | None:
    """Lead of the clock of `rows` over the known collectives'; None where too few ends meet."""
    chosen = np.unique(np.linspace(0, len(rows.row) - 1, SAMPLES).round().astype(np.int64))
    same = rows.kind[chosen][:, None] == kind[None, :]
    difference = np.sort((rows.end_ns[chosen][:, None] - end_ns[None, :])[same])
    if not len(difference):
        return None
    meet = np.searchsorted(difference, difference + near_ns, side="right") - np.arange(len(difference))
    best = _closest(difference, meet, near_ns)
    offset = int(np.median(difference[best : best + int(meet[best])]))
    aligned = rows.end_ns[chosen] - offset
    covered = int(((aligned >= end_ns.min() - near_ns) & (aligned <= end_ns.max() + near_ns)).sum())
    return offset if meet[best] >= max(FEWEST, ENOUGH * covered) else None


def _closest(difference: Array, meet: Array, near_ns: int) -> int:
    """Difference at which most others follow within `near_ns` (`meet`: how many, by sorted difference), the shortest
    span among equals, then the smallest, as clocks are set.

    `meet`: how many of the sorted differences follow each within `near_ns`.
    """
    good = np.flatnonzero(meet >= NEARLY * meet.max())
    apart = np.concatenate(([True], np.diff(difference[good]) > near_ns))
    bests = [int(part[np.argmax(meet[part])]) for part in np.split(good, np.flatnonzero(apart)[1:])]
    middles = [difference[at : at + int(meet[at])] for at in bests]
    spreads = [max(RESOLUTION_NS, float(np.median(np.abs(each - np.median(each))))) for each in middles]
    equal = [at for at, spread in zip(bests, spreads, strict=True) if spread <= WIDER * min(spreads)]
    return min(equal, key=lambda at: abs(int(difference[at])))


def _nearest(kind: Array, end_ns: Array, other_kind: Array, other_ns: Array, within_ns: int) -> Array:
    """Nearest known collective of its kind, by the end, to each of the others; -1 where none is within reach, or
    another one is nearer to it.
    """
    nearest, apart = np.full(len(other_ns), -1), np.full(len(other_ns), within_ns + 1)
    for each in np.unique(other_kind).tolist():
        others, of_kind = np.flatnonzero(other_kind == each), np.flatnonzero(kind == each)
        if not len(of_kind):
            continue
        of_kind = of_kind[np.argsort(end_ns[of_kind], kind="stable")]
        after = np.searchsorted(end_ns[of_kind], other_ns[others])
        for at in (np.maximum(after - 1, 0), np.minimum(after, len(of_kind) - 1)):
            distance = np.abs(end_ns[of_kind[at]] - other_ns[others])
            nearer = distance < apart[others]
            nearest[others[nearer]], apart[others[nearer]] = of_kind[at[nearer]], distance[nearer]
    order = np.lexsort((apart, nearest))
    repeated = np.concatenate(([False], nearest[order][1:] == nearest[order][:-1]))
    nearest[order[repeated]] = -1
    return nearest


# Steps that no mark numbers, paired between ranks: those that issue the same collectives are one.
#
# Every rank counts its own from where its recording begins. Where windows opened a step apart, the first of one is the
# second of another. Collectives that were matched by their numbers show that, also through a third rank. Ranks that
# share none are paired by time: a rank that runs ahead of the others begins its steps nearer to their previous ones.

FEWEST_ALIKE = 2  # steps of a rank: one has no rhythm to be laid over another


def paired_steps(
    ranks: Sequence[RankFacts], group_ids: Sequence[Array], keys: Sequence[GroupKey]
) -> tuple[tuple[RankFacts, ...], bool]:
    """The ranks with steps numbered alike on all of them, and whether pairing succeeded.

    Unchanged where the profiler has numbered them, where nothing connects the clocks, and where the steps of two ranks
    that share no collectives do not run at the same times.
    """
    unchanged = tuple(ranks)
    if all(f.step_source == "profiler_step" for f in ranks):
        return unchanged, True
    if len(ranks) < 2 or any(len(f.steps) < FEWEST_ALIKE for f in ranks):
        return unchanged, False
    matched = match(ranks, group_ids, keys)
    clock, _ = align(ranks, matched)
    if any(domain.error_ns is None for domain in clock.domains.values()):
        return unchanged, False
    start = [f.steps["start_ns"] - clock.offset_ns(p) for p, f in enumerate(ranks)]
    longest_first = sorted(range(len(ranks)), key=lambda p: -len(start[p]))
    longest = longest_first[0]
    place, place_of_issue = [_places(f) for f in ranks], _places_of_issue(ranks, matched)
    shifts: dict[int, int] = {}
    for p in longest_first:
        if p not in shifts:
            shift = _shift(start[longest], place[longest], start[p], place[p])
            if shift is None:
                return unchanged, False
            shifts = _carried({**shifts, p: shift}, matched, place_of_issue, len(ranks))
    return tuple(_moved(f, shifts[p] - min(shifts.values())) for p, f in enumerate(ranks)), True


def _places(facts: RankFacts) -> Array:
    """Steps from the rank's first to each, torn ones included, shape (steps,)."""
    return np.asarray(facts.steps["index"] - facts.steps["index"][0])


def _places_of_issue(ranks: Sequence[RankFacts], matched: Matched) -> Array:
    """Place of the step that issued each entry of `matched`; NULL outside steps, and for what was matched by its order,
    which counts from where a recording begins.
    """
    place, is_numbered = np.full(len(matched.rank), NULL), np.ones(len(matched.rank), bool)
    for facts, rows in zip(ranks, matched.rows_by_rank(len(ranks)), strict=True):
        comm = matched.comm[rows]
        step = intervals.row_at(facts.marks, issued_ns(facts.comms)[comm])
        inside = (step >= 0) & ~early_comms(facts.comms, facts.device_ops)[comm]
        place[rows[inside]] = _places(facts)[step[inside]]
        is_numbered[rows] = facts.comms["seq"][comm] != NULL
    lacking = matched.instance[~is_numbered & ~matched.is_message[matched.instance]]
    by_order = matched.is_message | np.isin(matched.group, matched.group[lacking])
    return np.where(by_order[matched.instance], NULL, place)


def _carried(shifts: dict[int, int], matched: Matched, place: Array, ranks: int) -> dict[int, int]:
    """The shifts, and those of all ranks that share collectives with these, or with ranks that do."""
    known, newest = dict(shifts), list(shifts)
    step = np.full(len(matched.op), NULL)  # of each collective
    rows_of = [rows[place[rows] != NULL] for rows in matched.rows_by_rank(ranks)]
    while newest:
        for p in newest:
            of_rank = matched.instance[rows_of[p]]
            step[of_rank] = np.where(step[of_rank] == NULL, place[rows_of[p]] + known[p], step[of_rank])
        newest = []
        for p in (p for p in range(ranks) if p not in known):
            shared = rows_of[p][step[matched.instance[rows_of[p]]] != NULL]
            shift = _agreed(step[matched.instance[shared]] - place[shared], len(shared))
            if shift is not None:
                known[p] = shift
                newest.append(p)
    return known


def _moved(facts: RankFacts, shift: int) -> RankFacts:
    """The rank with its steps numbered from `shift`."""
    by = shift - int(facts.steps["index"][0])
    torn = tuple(number + by for number in facts.torn_steps)
    return replace(facts, steps=facts.steps.replace(index=facts.steps["index"] + by), torn_steps=torn)


def _shift(reference: Array, reference_place: Array, start: Array, place: Array) -> int | None:
    """Number of steps by which `start` begins after `reference`; None where most steps disagree.

    `place`: steps from its rank's first to each. Ranks are in step at the last steps; the first ones depend on when a
    recording began.
    """
    half = float(np.median(np.diff(reference))) / 2
    after = np.clip(np.searchsorted(reference, start), 1, len(reference) - 1)
    nearest = after - (start - reference[after - 1] < reference[after] - start)
    close = np.abs(reference[nearest] - start) < half
    return _agreed((reference_place[nearest] - place)[close], len(start))


def _agreed(shifts: Array, of: int) -> int | None:
    """The most frequent shift; None where it is less than half of `of`."""
    values, times = np.unique(shifts, return_counts=True)
    best = int(np.argmax(times)) if len(times) else None
    return int(values[best]) if best is not None and times[best] * 2 >= of else None

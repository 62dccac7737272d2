"""Steps that no mark numbers, paired between ranks: those that issue the same collectives are one.

Every rank counts its own from where its recording begins. Where windows opened a step apart, the first of one is the
second of another. Collectives that were matched by their numbers show that, also through a third rank. Ranks that share
none are paired by time: a rank that runs ahead of the others begins its steps nearer to their previous ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import early_comms
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.clock import align
from ddprof.analyzers.job.groups.groups import GroupKey
from ddprof.analyzers.job.matching import Matched, match
from ddprof.tables import NULL, Array

FEWEST = 2  # steps of a rank: one has no rhythm to be laid over another


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
    if len(ranks) < 2 or any(len(f.steps) < FEWEST for f in ranks):
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

"""Ranks and steps that all recorded whole, and that can therefore be compared.

A cut file, a hole, or a window that opened later shows less work, not less speed. So ranks are compared over steps that
all of them hold, with the collectives of their peers (all members of a group call equally many) and, for programs with
equally many kernels in every step, with their kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.completeness import FEWER_SHARE as FEWER_EVENTS
from ddprof.analyzers.facts.completeness import LOST_SHARE, longest_run
from ddprof.analyzers.facts.early import early_comms, is_early
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.analyzers.facts.work import issued_ns, knows_launches, lost_device
from ddprof.analyzers.job.groups import comm_group_ids
from ddprof.analyzers.job.rendezvous.by_time import numbered_by_ends, paired_steps
from ddprof.model import HealthNote
from ddprof.significance import MAX_CHANCE
from ddprof.tables import NULL, Array, Table, distinct, of_kinds
from ddprof.units import format_count, format_ranks

ENOUGH = 2  # steps that suffice to compare all ranks by, before ranks are left out for more steps
FEW_OUT = 0.25  # of the ranks; of traffic with more members unseen nothing is said (rules/evidence/exposures.py)
FEWER_KERNELS = 5  # and FEWER_SHARE: what a step may lack and still be one of the same program (facts/completeness.py)
FEWER_SHARE = 0.01  # of a step's kernels
NO_COMMON_STEP = "the ranks recorded no step in common"
NOTHING_WHOLE = "no step was recorded whole on all ranks"


@dataclass(frozen=True)
class Comparable:
    """The ranks that can be compared, with the steps all of them recorded whole, and notes on what was left out.

    `why_not`: why no comparison is possible, "" where it is; without it every rank keeps its own steps. `whole_steps`:
    by path, of ranks with steps left out.
    """

    ranks: tuple[RankFacts, ...]
    notes: tuple[HealthNote, ...] = ()
    why_not: str = ""
    whole_steps: Mapping[str, Table] = field(default_factory=dict)

    def recorded(self, facts: RankFacts) -> Table:
        """STEPS that the rank recorded whole, including those that its peers lack."""
        return self.whole_steps.get(facts.path, facts.steps)


def comparable(ranks: Sequence[RankFacts]) -> Comparable:
    """The largest block of ranks and consecutive steps that is recorded whole. Tables of events are not cut."""
    if len(ranks) < 2:
        return Comparable(_own_stretches(ranks))
    usable = [p for p, facts in enumerate(ranks) if _is_whole(facts, ranks)]
    if len(usable) == 1:
        alone = [ranks[usable[0]]]
        return Comparable(_own_stretches(alone), (left_out_ranks_note(ranks, usable),), NOTHING_WHOLE)
    if 1 < len(usable) < len(ranks):  # first: they have no step that others could be numbered by
        compared = comparable([ranks[p] for p in usable])
        return replace(compared, notes=(left_out_ranks_note(ranks, usable), *compared.notes))
    group_ids, keys = comm_group_ids(ranks)
    ranks = numbered_by_ends(ranks, group_ids)
    ranks, are_numbered = paired_steps(ranks, group_ids, keys)
    if not (are_numbered or _are_alike(ranks)):
        return _recorded_whole(ranks)
    numbers = np.unique(np.concatenate([_every_number(f) for f in ranks]))
    has = np.array([np.isin(numbers, f.steps["index"]) for f in ranks])
    whole = has & _whole(ranks, numbers, has)
    if whole.all():
        return Comparable(ranks)
    kept, first, end = _block(whole)
    if len(kept) < 2:
        why_not = NOTHING_WHOLE if has.all(axis=0).any() else NO_COMMON_STEP
        return Comparable(_own_stretches(ranks), why_not=why_not)
    chosen = numbers[first:end]
    cut = tuple(with_steps(_with_torn(ranks[p], numbers, has[p], whole[p]), _rows_of(ranks[p], chosen)) for p in kept)
    held = {ranks[p].path: ranks[p].steps.take(_rows_of(ranks[p], numbers[whole[p]])) for p in kept}
    return Comparable(cut, tuple(_notes(ranks, kept, chosen, numbers, has, whole)), whole_steps=held)


def _with_torn(facts: RankFacts, numbers: Array, has: Array, whole: Array) -> RankFacts:
    """The rank with its torn steps: those not recorded whole, and those that it lacks between its earlier and later
    ones, as a recording rank marks every step.
    """
    skipped = ~has & np.logical_or.accumulate(has) & np.logical_or.accumulate(has[::-1])[::-1]
    torn = numbers[(has & ~whole) | skipped].tolist()
    return replace(facts, torn_steps=tuple(sorted({*facts.torn_steps, *torn})))


def _rows_of(facts: RankFacts, numbers: Array) -> Array:
    """Rows of the rank's steps with these numbers."""
    return np.flatnonzero(np.isin(facts.steps["index"], numbers))


def _every_number(facts: RankFacts) -> Array:
    """Numbers of the rank's recorded steps, whole or not; int64, ascending."""
    return np.union1d(facts.steps["index"], np.array(facts.torn_steps, np.int64)).astype(np.int64)


def _own_stretches(ranks: Sequence[RankFacts]) -> tuple[RankFacts, ...]:
    """Every rank with its longest run of whole steps, as time between separate runs is unknown."""
    stretches = []
    for facts in ranks:
        every = _every_number(facts)
        first, end = longest_run(np.isin(every, facts.steps["index"]))
        stretches.append(with_steps(facts, _rows_of(facts, every[first:end])))
    return tuple(stretches)


def _are_alike(ranks: Sequence[RankFacts]) -> bool:
    """True where all ranks hold equally many steps of one window. A single step left of a torn window may be any."""
    is_torn = any(f.torn_steps for f in ranks)
    return len({len(f.steps) for f in ranks}) == 1 and not (is_torn and len(ranks[0].steps) < ENOUGH)


def _recorded_whole(ranks: Sequence[RankFacts]) -> Comparable:
    """Ranks whose files hold their whole windows, for steps without numbers. A rank whose window is one step is
    compared only with its like; a rank with torn steps with none, as its first step may be its peers' second.
    """
    one_window = [len(f.steps) == 1 for f in ranks]
    apart = one_window if not all(one_window) else [False] * len(ranks)
    whole = [_is_whole(facts, ranks) and not facts.torn_steps for facts in ranks]
    kept = [p for p in range(len(ranks)) if whole[p] and not apart[p]]
    if len(kept) == len(ranks):
        return Comparable(_own_stretches(ranks))
    if len(kept) < 2:
        return Comparable(_own_stretches(ranks), why_not=NOTHING_WHOLE)
    compared = comparable([ranks[p] for p in kept])  # what their steps cannot be paired for may have been the others
    return replace(compared, notes=(left_out_ranks_note(ranks, kept), *compared.notes))


def _whole(ranks: Sequence[RankFacts], numbers: Array, has: Array) -> Array:
    """Mask of steps that each rank recorded whole; shape (ranks, steps)."""
    whole = np.array([np.full(len(numbers), _is_whole(f, ranks)) for f in ranks])
    if all(knows_launches(f) for f in ranks):
        whole &= ~_lacks_collectives(ranks, numbers, has)
        return whole & ~_lacks_kernels(ranks, numbers, has, FEWER_SHARE)
    # By when work ran, not when it was launched: what runs across a mark is of the one step here and the other there.
    return whole & ~_lacks_kernels(ranks, numbers, has, FEWER_EVENTS)


def _is_whole(facts: RankFacts, ranks: Sequence[RankFacts]) -> bool:
    """True where the file shows the device's work in every step that it holds."""
    return bool(facts.counts.get("whole", 1)) and not lost_device(facts, ranks)


def _lacks_collectives(ranks: Sequence[RankFacts], numbers: Array, has: Array) -> Array:
    """Mask of (rank, step) with fewer collectives of a process group than another member's."""
    ids, keys = comm_group_ids(ranks)
    lacks = np.zeros(has.shape, bool)
    rank_of = {f.identity.rank: p for p, f in enumerate(ranks)}
    called: list[Array] = []  # group, position and step of each call, of each rank
    is_known = np.ones(len(keys), bool)
    for position, facts in enumerate(ranks):
        step = _column(facts, facts.comms, early_comms(facts.comms, facts.device_ops), numbers)
        counted = (step >= 0) & ~of_kinds(facts.comms["op"], POINT_TO_POINT)
        called.append(np.stack((ids[position][counted], np.full(int(counted.sum()), position), step[counted])))
        is_known[np.unique(ids[position][counted & (facts.comms["seq"] == NULL)])] = False
    places, which = distinct(*np.concatenate(called, axis=1))
    counts, first = np.bincount(which), np.searchsorted(places[0], np.arange(len(keys) + 1))
    for group, (members, _) in enumerate(keys):
        traced = np.array([rank_of[r] for r in members if r in rank_of], np.int64)
        if len(traced) > 1:
            of_group, every = slice(*first[group : group + 2]), np.zeros(has.shape, np.int64)  # of one group at a time
            every[tuple(places[1:, of_group])] = counts[of_group]
            calls, here = every[traced], has[traced]
            most = np.where(here, calls, 0).max(axis=0)
            fewer = here & (calls < most)
            lacks[traced] |= fewer & ~_is_sparse(calls, np.where(here, most, 0)) if is_known[group] else fewer
    return lacks


def _is_sparse(calls: Array, most: Array) -> Array:
    """Mask of steps that lack single records of a file that lacks few; the rest of them is valid.

    A collective is missing where its launch or its kernel is: with twice the chance of a record, and of few collectives
    by two standard deviations more than that, in a step as in all.
    """

    def at_most(of: Array) -> Array:
        expected = 2 * LOST_SHARE * of
        return np.asarray(expected + 2 * np.sqrt(expected))

    lost, every = most - calls, most.sum(axis=1, keepdims=True)
    return np.asarray((lost <= np.maximum(1, at_most(most))) & (lost.sum(axis=1, keepdims=True) <= at_most(every)))


def _lacks_kernels(ranks: Sequence[RankFacts], numbers: Array, has: Array, share: float) -> Array:
    """Mask of (rank, step) with fewer kernels, by `share`, than most of the rank's steps, while most other ranks have
    theirs. A count like most peers' lacks nothing: the rank's other steps do more, such as saves. For CPU ranks
    operators count, and a count seen in another step is a kind of step, as where ranks alternate.
    """
    steps = []  # position in `numbers` of the step of each kernel and of each operator of a CPU rank; -1 for none
    for facts in ranks:
        kernels = _column(facts, facts.device_ops, is_early(facts.device_ops), numbers)
        steps.append(np.append(kernels, _steps_at(facts, facts.host_operators["start_ns"], numbers)))
    counts = np.array([np.bincount(step[step >= 0], minlength=len(numbers)) for step in steps])
    usual = np.array([_usual(row[recorded]) for row, recorded in zip(counts, has, strict=True)])[:, None]
    alike = np.array([_usual(row[recorded]) for row, recorded in zip(counts.T, has.T, strict=True)])[None, :]
    is_static = ((counts == alike) & (alike > 0)).any(axis=1, keepdims=True)  # equals its peers where it is whole
    fewer = has & (_fewer(counts, usual, share) | (is_static & _fewer(counts, alike, share)))
    fewer |= has & (usual == 0) & (_far_fewer(counts, has) | _scattered_below(counts, usual))
    on_cpu = np.array([len(facts.host_operators) > 0 for facts in ranks])[:, None]
    held = np.where(has, counts, -1)
    again = (held[:, :, None] == held[:, None, :]).sum(axis=2) > 1
    fewer &= ~(on_cpu & again)
    common = fewer.sum(axis=0) * 2 > has.sum(axis=0)  # the program itself launches fewer there
    fewer &= ~common & (counts != alike)
    for position, at in np.argwhere(fewer).tolist():
        fewer[position, at] = not _ran_less(ranks[position], steps[position], at, has[position])
    return np.asarray(fewer)


def _ran_less(facts: RankFacts, step: Array, at: int, has: Array) -> bool:
    """True where a step has fewer kernels or operators (`step`: of each) because its data asked for fewer: those that
    come equally often in most steps are all there, as a loss of so many at random would leave them by chance alone.
    """
    names = np.concatenate((facts.device_ops["name"], facts.host_operators["name"])).astype(np.int64)
    if not len(names):
        return False
    _, which = np.unique(names, return_inverse=True)
    counts = np.zeros((int(which.max()) + 1, len(has)), np.int64)
    np.add.at(counts, (which[step >= 0], step[step >= 0]), 1)
    others = counts[:, has & (np.arange(len(has)) != at)]
    usual = np.array([_usual(row) for row in others])
    kept = float(counts[:, at].sum()) / max(1.0, float(np.median(others.sum(axis=0))))
    steady = usual > 0
    return bool((counts[steady, at] >= usual[steady]).all()) and kept ** int(usual.sum()) < MAX_CHANCE


def _fewer(counts: Array, usual: Array, share: float) -> Array:
    return (usual > 0) & (usual - counts >= np.maximum(FEWER_KERNELS, share * usual))


def _far_fewer(counts: Array, has: Array) -> Array:
    """Mask of (rank, step) with far fewer kernels than the rank's typical step and its peers in this one, where no two
    of the rank's counts agree: records were lost at random, or its work depends on data.
    """
    few = 1 - 2 * LOST_SHARE  # records are lost in the one step and in the other
    held = np.where(has, counts, np.nan)
    of_rank, here = _median(held, 1), _median(held, 0)
    part = held / np.maximum(of_rank, 1.0)
    torn = (part < few * _median(part, 0)) & (held < few * here)
    return np.asarray(torn & (held < of_rank - FEWER_KERNELS))


def _scattered_below(counts: Array, usual: Array) -> Array:
    """Mask of (rank, step) with far fewer kernels than at least half of the ranks, which launch equally many in every
    step. A rank that runs their program with ever-changing counts lacks records.
    """
    alike = usual[usual > 0]
    if 2 * len(alike) < len(usual):
        return np.zeros(counts.shape, bool)
    return np.asarray(counts < (1 - 2 * LOST_SHARE) * alike.min() - FEWER_KERNELS)


def _median(values: Array, axis: int) -> Array:
    """Median over an axis, which is kept, ignoring NaN; NaN where all are."""
    rows = values if axis else values.T
    finite = [row[~np.isnan(row)] for row in rows]
    medians = np.array([float(np.median(row)) if len(row) else np.nan for row in finite])
    return medians[:, None] if axis else medians[None, :]


def _usual(counts: Array) -> int:
    """The majority value; 0 where there is none."""
    values, times = np.unique(counts, return_counts=True)
    return int(values[np.argmax(times)]) if len(times) and times.max() * 2 > len(counts) else 0


def _column(facts: RankFacts, table: Table, early: Array, numbers: Array) -> Array:
    """Position in `numbers` of the step that issued each row of DEVICE_OPS or COMMS; -1 where none did: what was
    launched before the recording (`early`) is of no step, however far the rank's host ran ahead.
    """
    return np.where(early, -1, _steps_at(facts, issued_ns(table), numbers))


def _steps_at(facts: RankFacts, at_ns: Array, numbers: Array) -> Array:
    """Position in `numbers` of the step that holds each time; -1 where none does."""
    column = np.append(np.searchsorted(numbers, facts.steps["index"]), -1)
    return column[intervals.row_at(facts.marks, at_ns)]  # row -1 is none


def _block(whole: Array) -> tuple[list[int], int, int]:
    """Ranks and a half-open range of steps, all whole: every rank if ENOUGH steps are; else the largest block without
    FEW_OUT of the ranks that have a whole step; else the block with most ranks, as lateness and traffic need all
    members.
    """
    usable = int(whole.any(axis=1).sum())
    # No largest block begins or ends but where steps differ: all pairs of steps of a long recording take minutes.
    changes = 1 + np.flatnonzero((whole[:, 1:] != whole[:, :-1]).any(axis=0))
    blocks = []
    for first, end in combinations([0, *changes.tolist(), whole.shape[1]], 2):
        kept = np.flatnonzero(whole[:, first:end].all(axis=1)).tolist()
        if kept:
            blocks.append((kept, first, end))
    if not blocks:
        return [], 0, 0
    every = max((block for block in blocks if len(block[0]) == usable), key=_steps, default=None)
    if every is not None and (_steps(every) >= ENOUGH or 2 * _steps(every) >= whole.shape[1]):
        return every
    few = [block for block in blocks if usable - len(block[0]) <= FEW_OUT * usable]
    if few:
        return max(few, key=lambda block: len(block[0]) * _steps(block))
    return max(blocks, key=lambda block: (len(block[0]), _steps(block)))


def _steps(block: tuple[list[int], int, int]) -> int:
    return block[2] - block[1]


def _notes(
    ranks: Sequence[RankFacts], kept: Sequence[int], chosen: Array, numbers: Array, has: Array, whole: Array
) -> list[HealthNote]:
    notes = [left_out_ranks_note(ranks, kept)] if len(kept) < len(ranks) else []
    if len(chosen) < len(numbers):
        torn = (has & ~whole)[list(kept)]
        fewest, most = int(has.sum(axis=1).min()), int(has.sum(axis=1).max())
        issue = f"ranks recorded {fewest} to {most} steps" if fewest < most else "ranks recorded different steps"
        if torn.any():
            where = ", ".join(map(str, numbers[torn.any(axis=0)][:8].tolist()))
            issue = f"a rank lacks events that its peers recorded, in steps {where}"
        used = format_count(len(chosen), "step")
        notes.append(HealthNote(issue, f"used: {used} that all ranks recorded completely", "info"))
    return notes


def left_out_ranks_note(ranks: Sequence[RankFacts], kept: Sequence[int]) -> HealthNote:
    """Note on ranks (all but the positions `kept`) left out for missing records."""
    gone = [facts for p, facts in enumerate(ranks) if p not in set(kept)]
    named = format_ranks(tuple(rank for facts in gone if (rank := facts.identity.rank) is not None))
    return HealthNote(f"{named} recorded too few of the common steps", "left out, and not compared", "warning")

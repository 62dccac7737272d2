"""What all ranks recorded whole: the ranks and steps that can be compared.

A file that was cut, a hole in it, or a window that opened later shows less work, not less speed. So ranks are compared
over steps that all of them hold, and in which none of them lacks what its peers recorded: collectives, which every
member of a process group calls equally often, and kernels of a program that launches equally many in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddprof.analyzers.facts.completeness import longest_run
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.analyzers.facts.work import issued_ns, knows_launches
from ddprof.analyzers.job.traffic.groups import comm_group_ids
from ddprof.model import HealthNote
from ddprof.tables import Array
from ddprof.units import format_ranks

ENOUGH = 2  # steps that suffice to compare all ranks by, before ranks are left out for more steps
FEWER_KERNELS = 5  # and FEWER_SHARE: what a step may lack and still be one of the same program (facts/completeness.py)
FEWER_SHARE = 0.01  # of a step's kernels
NO_COMMON_STEP = "the ranks recorded no step in common"
NOTHING_WHOLE = "no step was recorded whole on all ranks"


@dataclass(frozen=True)
class Comparable:
    """The ranks that can be compared, with the steps all of them recorded whole, and notes on what was left out.

    `why_not`: why they cannot be compared at all; then every rank is there with its own steps. "" where they can.
    """

    ranks: tuple[RankFacts, ...]
    notes: tuple[HealthNote, ...] = ()
    why_not: str = ""


def comparable(ranks: Sequence[RankFacts]) -> Comparable:
    """The largest block of ranks and consecutive steps that is recorded whole. Tables of events are not cut."""
    unchanged = Comparable(tuple(ranks))
    if len(ranks) < 2:
        return unchanged
    if not _are_numbered(ranks):
        return _recorded_whole(ranks)
    numbers = np.unique(np.concatenate([f.steps["index"] for f in ranks]))
    has = np.array([np.isin(numbers, f.steps["index"]) for f in ranks])
    whole = has & _whole(ranks, numbers, has)
    if whole.all():
        return unchanged
    kept, first, end = _block(whole)
    if len(kept) < 2:
        return replace(unchanged, why_not=NOTHING_WHOLE if has.all(axis=0).any() else NO_COMMON_STEP)
    chosen = numbers[first:end]
    rows = {p: np.flatnonzero(np.isin(ranks[p].steps["index"], chosen)) for p in kept}
    cut = tuple(with_steps(ranks[p], rows[p]) for p in kept)
    return Comparable(cut, tuple(_notes(ranks, kept, chosen, numbers, has, whole)))


def _are_numbered(ranks: Sequence[RankFacts]) -> bool:
    """Whether a step has one number on all ranks: marked by the profiler, or all of one window found alike."""
    if any(not len(f.steps) for f in ranks):
        return False
    marked = all(f.step_source == "profiler_step" for f in ranks)
    return marked or len({len(f.steps) for f in ranks}) == 1


def _recorded_whole(ranks: Sequence[RankFacts]) -> Comparable:
    """The ranks whose files hold their whole windows, where steps have no numbers by which they could be paired."""
    kept = [p for p, facts in enumerate(ranks) if facts.counts.get("whole", 1)]
    if len(kept) == len(ranks):
        return Comparable(tuple(ranks))
    if len(kept) < 2:
        return Comparable(tuple(ranks), why_not=NOTHING_WHOLE)
    return Comparable(tuple(ranks[p] for p in kept), (_left_out_note(ranks, kept),))


def _whole(ranks: Sequence[RankFacts], numbers: Array, has: Array) -> Array:
    """Whether each rank recorded all of each step that it has; bool, shape (ranks, steps)."""
    whole = np.array([np.full(len(numbers), bool(f.counts.get("whole", 1))) for f in ranks])
    if all(knows_launches(f) for f in ranks):
        whole &= ~_lacks_collectives(ranks, numbers, has)
        whole &= ~_lacks_kernels(ranks, numbers, has)
    return whole


def _lacks_collectives(ranks: Sequence[RankFacts], numbers: Array, has: Array) -> Array:
    """Where a rank called fewer collectives of a process group than another member of it, in one step."""
    ids, keys = comm_group_ids(ranks)
    lacks = np.zeros(has.shape, bool)
    rank_of = {f.identity.rank: p for p, f in enumerate(ranks)}
    counts = np.zeros((len(keys), *has.shape), np.int64)
    for position, facts in enumerate(ranks):
        step = _column(facts, issued_ns(facts.comms), numbers)
        mine = (step >= 0) & ~np.isin(facts.comms["op"], POINT_TO_POINT)
        np.add.at(counts[:, position], (ids[position][mine], step[mine]), 1)
    for group, (members, _) in enumerate(keys):
        traced = np.array([rank_of[r] for r in members if r in rank_of], np.int64)
        if len(traced) > 1:
            most = np.where(has[traced], counts[group, traced], 0).max(axis=0)
            lacks[traced] |= has[traced] & (counts[group, traced] < most)
    return lacks


def _lacks_kernels(ranks: Sequence[RankFacts], numbers: Array, has: Array) -> Array:
    """Where a rank launched fewer kernels than in most of its steps, while most others did not."""
    counts = np.zeros(has.shape, np.int64)
    for position, facts in enumerate(ranks):
        step = _column(facts, issued_ns(facts.device_ops), numbers)
        counts[position] = np.bincount(step[step >= 0], minlength=len(numbers))
    usual = np.array([_usual(own[mine]) for own, mine in zip(counts, has, strict=True)])[:, None]
    alike = np.array([_usual(own[mine]) for own, mine in zip(counts.T, has.T, strict=True)])[None, :]
    is_static = ((counts == alike) & (alike > 0)).any(axis=1, keepdims=True)  # equals its peers where it is whole
    fewer = has & (_fewer(counts, usual) | (is_static & _fewer(counts, alike)))
    common = fewer.sum(axis=0) * 2 > has.sum(axis=0)  # the program itself launches fewer there
    return np.asarray(fewer & ~common)


def _fewer(counts: Array, usual: Array) -> Array:
    return (usual > 0) & (usual - counts >= np.maximum(FEWER_KERNELS, FEWER_SHARE * usual))


def _usual(counts: Array) -> int:
    """The value that more than half have; 0 where there is none."""
    values, times = np.unique(counts, return_counts=True)
    return int(values[np.argmax(times)]) if len(times) and times.max() * 2 > len(counts) else 0


def _column(facts: RankFacts, issued: Array, numbers: Array) -> Array:
    """Position in `numbers` of the step that each moment of the host lies in; -1 where in none."""
    start, end = facts.marks
    step = np.searchsorted(start, issued, side="right") - 1
    inside = (step >= 0) & (issued < end[np.maximum(step, 0)])
    return np.where(inside, np.searchsorted(numbers, facts.steps["index"][np.maximum(step, 0)]), -1)


def _block(whole: Array) -> tuple[list[int], int, int]:
    """Ranks and a half-open range of steps, all whole: every rank if ENOUGH steps are, else the largest block.

    Ranks are left out one by one, each time the one that holds the fewest whole steps.
    """
    kept = [p for p in range(len(whole)) if whole[p].any()]
    best: tuple[list[int], int, int] = ([], 0, 0)
    while kept:
        in_all: Array = np.logical_and.reduce(whole[kept])
        first, end = longest_run(in_all)
        if (end - first) * len(kept) > (best[2] - best[1]) * len(best[0]):
            best = (list(kept), first, end)
        if end - first >= ENOUGH or (end - first) * 2 >= whole.shape[1]:
            break
        kept.remove(min(kept, key=lambda p: (int(whole[p].sum()), p)))
    return best


def _notes(
    ranks: Sequence[RankFacts], kept: Sequence[int], chosen: Array, numbers: Array, has: Array, whole: Array
) -> list[HealthNote]:
    notes = [_left_out_note(ranks, kept)] if len(kept) < len(ranks) else []
    if len(chosen) < len(numbers):
        torn = (has & ~whole)[list(kept)]
        issue = f"ranks hold different steps: {int(has.sum(axis=1).min())} to {int(has.sum(axis=1).max())}"
        if torn.any():
            where = ", ".join(map(str, numbers[torn.any(axis=0)][:8].tolist()))
            issue = f"a rank lacks events that its peers recorded, in steps {where}"
        notes.append(HealthNote(issue, f"only the {len(chosen)} that all of them recorded whole are used", "info"))
    return notes


def _left_out_note(ranks: Sequence[RankFacts], kept: Sequence[int]) -> HealthNote:
    gone = [facts for p, facts in enumerate(ranks) if p not in set(kept)]
    named = format_ranks(tuple(rank for facts in gone if (rank := facts.identity.rank) is not None))
    issue = f"{named} recorded too little of the steps that the others recorded"
    return HealthNote(issue, "not compared, and left out: what was late there is unknown", "warning")

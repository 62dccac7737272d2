"""Steps that no mark numbers, paired between ranks: those that run at the same time are one.

Every rank counts its own from where its recording begins. Where windows opened a step apart, the first of one is the
second of another; on the common clock that shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.clock import align
from ddprof.analyzers.job.groups.groups import GroupKey
from ddprof.analyzers.job.matching import match
from ddprof.tables import Array

FEWEST = 2  # steps of a rank: one has no rhythm to be laid over another


def paired_steps(
    ranks: Sequence[RankFacts], group_ids: Sequence[Array], keys: Sequence[GroupKey]
) -> tuple[tuple[RankFacts, ...], bool]:
    """The ranks with steps numbered alike on all of them, and whether pairing succeeded.

    Unchanged where the profiler has numbered them, where nothing connects the clocks, and where the steps of two ranks
    do not run at the same times.
    """
    unchanged = tuple(ranks)
    if all(f.step_source == "profiler_step" for f in ranks):
        return unchanged, True
    if len(ranks) < 2 or any(len(f.steps) < FEWEST for f in ranks):
        return unchanged, False
    clock, _ = align(ranks, match(ranks, group_ids, keys))
    if any(domain.error_ns is None for domain in clock.domains.values()):
        return unchanged, False
    start = [f.steps["start_ns"] - clock.offset_ns(p) for p, f in enumerate(ranks)]
    longest = max(range(len(ranks)), key=lambda p: len(start[p]))
    place = [f.steps["index"] - f.steps["index"][0] for f in ranks]  # of each step among its rank's, torn ones included
    shifts = [_shift(start[longest], place[longest], *of_rank) for of_rank in zip(start, place, strict=True)]
    if any(shift is None for shift in shifts):
        return unchanged, False
    offsets = [shift or 0 for shift in shifts]
    return tuple(_moved(f, shift - min(offsets)) for f, shift in zip(ranks, offsets, strict=True)), True


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
    if not close.any():
        return None
    shifts, times = np.unique((reference_place[nearest] - place)[close], return_counts=True)
    best = int(np.argmax(times))
    return int(shifts[best]) if times[best] * 2 >= len(start) else None

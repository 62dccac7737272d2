"""Ranks get unequal work, and who is late changes or follows the data.

What it detects: compute time differs between ranks within a step more than their pace explains, and the slowest rank
changes from step to step, or the same rank has more of the same kernels.
Why it costs: every step waits for the rank with most work.
How the gain is priced: the run is replayed with each step's compute spread evenly over the ranks (OSDI'25: the mean).
How to fix: batch by length, pack by the sum of squared lengths, rebalance shards.
Limits: what the ranks were fed is known where ddprof captured the run (elements of each batch, padding included). A
single step cannot show who changes. Unequal pipeline stages are pipeline.imbalance.
Sources: OSDI'25 section 5.3 (sequence length imbalance: 21 % of jobs).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.slowdown import Slowdown
from ddprof.analyzers.job.whole_run.sampling import fed_elements
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_wait
from ddprof.analyzers.rules.evidence.stages import unknown_peers
from ddprof.analyzers.rules.straggler_compute import slow_positions
from ddprof.findings import Abstention, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_ranks, format_share

MORE_WORK_SHARE = 0.1  # of a rank's time, in kernels that its peers do not launch
STEADY_EXCESS = 0.02  # over the typical peer in nearly every step: such ranks are slow, and set aside
MIN_FED_SPREAD = 0.05  # between the batches of a step; equal batches do not differ but for the last of an epoch
MIN_LOST_SHARE = 0.03  # of the step waited, before unequal batches are worth a finding by themselves


def rotating_spread(work: Slowdown, slowdown: Slowdown, culprits: list[int]) -> tuple[float, int]:
    """Mean over steps of (slowest - mean) relative slowdown once steady culprits are set aside, and how many ranks take
    turns.
    """
    steps = work.per_step.copy()
    for p in culprits:
        steps[p] /= slowdown.factor[p]
    usable = np.isfinite(steps).all(axis=1)
    if usable.sum() < 2 or steps.shape[1] < 2:
        return 0.0, 0
    kept = steps[usable]
    slowest = np.argmax(kept, axis=0)
    return float((kept.max(axis=0) - kept.mean(axis=0)).mean()), len(np.unique(slowest))


def fed_evidence(measures: Measures) -> Iterator[Evidence]:
    """What the ranks were fed in the traced steps, where the capture counted it: who got how much more."""
    fed = fed_elements(measures.job.ranks)
    if fed is None:
        return
    mean = fed.mean(axis=0)
    step = int(np.argmax(fed.max(axis=0) / mean))
    most, least = int(np.argmax(fed[:, step])), int(np.argmin(fed[:, step]))
    ratio = float(fed[most, step] / fed[least, step])
    if ratio < 1 + MIN_FED_SPREAD:
        yield Evidence("the loaders hand every rank equally many elements: what is done with them differs")
        return
    turns = len(np.unique(np.argmax(fed, axis=0)))
    text = f"its batch held {ratio:.2f} x the elements of rank {measures.job.rank_ids[least]}'s in one step; "
    text += "the largest batch moves between ranks" if turns > 1 else "it gets the largest batch in every step"
    yield Evidence(text, measures.job.rank_ids[most])


def _unequal_batches(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Kernels cannot be compared (other shapes on every rank), but what the ranks were fed can."""
    fed = fed_elements(measures.job.ranks)
    spread = 0.0 if fed is None else float((fed.max(axis=0) / fed.mean(axis=0) - 1).mean())
    lost = float(measures.cause_us("comm_wait").mean())
    if fed is None or spread < MIN_FED_SPREAD or lost < MIN_LOST_SHARE * measures.step_us:
        yield Abstention(RULE.id, "balance cannot be judged: no two ranks with the same kernels were traced")
        return
    heavy = np.unique(np.argmax(fed, axis=0))
    numbers = measures.ranks(heavy) if len(heavy) == 1 else ()
    yield Candidate(
        id=RULE.id,
        summary=f"the largest batch of a step holds {format_share(spread)} more than the mean, "
        "and the other ranks wait",
        ranks=numbers,
        lost_us=lost,
        changes=(),
        confidence=0.6,
        evidence=tuple(fed_evidence(measures)),
        fixes=(_fix(numbers),),
        ceiling_us=lost,
        band=0.5,
        is_bound=True,
    )


def _alone() -> Iterator[Abstention]:
    yield Abstention(RULE.id, "balance cannot be judged: no two ranks with the same kernels were traced")


def _fix(numbers: tuple[int, ...]) -> Fix:
    return Fix(
        setting="batch composition" + (f" of {format_ranks(numbers)}" if numbers else ""),
        suggested="bucket samples by length, or pack so that the cost of every rank's batch is equal",
        patch="sampler = LengthGroupedSampler(batch_size, lengths=lengths)  # or pack by sum(len**2)",
        why="the same kernels take different times from step to step, so the data and not the device decides",
        source="OSDI'25 section 5.3: re-packing gained 23.9 % in their case",
    )


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Work that is unequal within steps and does not stay with one device."""
    slowdown = measures.compute
    if len(measures.job.ranks) < 2 or not np.isfinite(slowdown.factor).any():
        yield from _unequal_batches(measures) if len(measures.job.ranks) > 1 else _alone()
        return
    if unknown := unknown_peers(measures):
        yield Abstention(RULE.id, unknown)
        return
    heavy = np.flatnonzero(slowdown.more_work >= MORE_WORK_SHARE)
    steady = slow_positions(slowdown, STEADY_EXCESS)
    spread, turns = rotating_spread(measures.work, slowdown, steady.tolist())
    if spread < execution_of(measures.job).limits.min_work_spread or (turns < 2 and not len(heavy)):
        return
    numbers = measures.ranks(heavy) if len(heavy) and turns < 2 else ()
    lost = measures.cause_us("comm_wait").mean()
    worst = int(np.argmax([charged_us(measures, [p]) for p in range(len(measures.job.ranks))]))
    yield Candidate(
        id=RULE.id,
        summary=f"the slowest rank of a step computes {format_share(spread)} longer than the mean, "
        f"and {turns} ranks take turns at it",
        ranks=numbers,
        lost_us=float(lost),
        changes=(Change("balance_compute"),),
        confidence=0.85 if measures.steps >= 3 else 0.6,
        evidence=(
            *fed_evidence(measures),
            Evidence(f"{turns} different ranks were the slowest in {measures.steps} steps"),
            *largest_wait(measures, worst),
        ),
        fixes=(_fix(numbers),),
        band=0.2,
    )


RULE = Rule("straggler.imbalance", "Ranks get unequal work", detect, bound="straggler")

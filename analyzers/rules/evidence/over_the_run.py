"""Pauses over the whole run, as capture recorded or sampled them, priced by their share of its time."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES, TIMES_PEERS
from ddprof.analyzers.job.script.occupying import SeenSaving
from ddprof.analyzers.job.whole_run.pauses import Pauses
from ddprof.analyzers.rules.evidence.spans import run_evidence
from ddprof.findings import Basis, Candidate, Doubt, Evidence, Fix
from ddprof.tables import Array
from ddprof.units import format_share

MIN_SHARE = 0.01  # of the run's time, before pauses outside the trace are worth a finding


def is_told_by_the_run(measures: Measures, pauses: Pauses, traced_us: Array) -> bool:
    """True where the worst rank pauses over the run for a share worth a finding, and the traced steps do not price it:
    they hold less, or are few of those in which a CPU rank, that has no device to hide a pause, was timed.

    `traced_us`: pauses of each rank per traced step, shape (ranks,). The replay of so little would price nothing.
    """
    is_little = float(traced_us[pauses.position]) < MIN_SHARE * measures.step_us
    return pauses.share >= MIN_SHARE and (is_little or execution_of(measures.job).computes_on_host)


def over_the_run(
    rule_id: str,
    words: tuple[str, str],
    measures: Measures,
    pauses: Pauses,
    what: str,
    fix: Fix,
    is_chance: bool = False,
) -> Candidate:
    """The candidate for pauses priced by the run's timers. `words`: of the summary, before and after the share of the
    run; `what`: the pauses in words, plural; `is_chance`: they may be on one rank alone by chance.
    """
    numbers = () if is_chance else measures.theirs(pauses.shares)
    share = pauses.share if numbers else pauses.share_of_job
    lost_us = share * measures.step_us
    ranks = numbers if pauses.shares else (measures.job.rank_ids[pauses.position],)  # others' are not known
    whose = f" on {measures.whom(ranks)}" if ranks else ""
    return Candidate(
        id=rule_id,
        summary=f"{words[0]} {format_share(share)} of the run{whose}{words[1]}",
        ranks=numbers,
        lost_us=lost_us,
        basis=Basis.TIMED,
        evidence=(run_evidence(measures, pauses, what),),
        fixes=(fix,),
        times_us=() if is_chance else tuple(share * measures.step_us for share in pauses.shares),
        doubts=(Doubt.ONE_EVENT,) if pauses.count == 1 else (),
    )


def seen_alone(of_ranks: list[SeenSaving | None]) -> tuple[int, SeenSaving] | None:
    """Position and samples of the only rank seen so; None for any other number of ranks."""
    share = np.array([0.0 if seen is None else seen.share for seen in of_ranks])
    worst = int(np.argmax(share))
    seen, others = of_ranks[worst], np.delete(share, worst)
    if seen is None or seen.samples < FEWEST_SAMPLES or share[worst] < MIN_SHARE or not len(others):
        return None
    return (worst, seen) if share[worst] >= TIMES_PEERS * others.max() else None


def over_the_samples(
    measures: Measures, rule_id: str, position: int, seen: SeenSaving, words: str, fix: Fix
) -> Candidate:
    """The candidate for what samples of the run saw one rank alone do. `words`: of the summary, before the share."""
    rank, lost_us = measures.job.rank_ids[position], seen.share * measures.step_us
    return Candidate(
        id=rule_id,
        summary=f"{words} {format_share(seen.share)} of the run on rank {rank} alone",
        ranks=(rank,),
        lost_us=lost_us,
        basis=Basis.TIMED,
        evidence=(Evidence(f"{seen.line}: seen in {seen.samples} of {seen.of} samples of the whole run", rank),),
        fixes=(fix,),
        band=0.5,
    )

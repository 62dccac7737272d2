"""Pauses that capture recorded outside the traced steps, priced by their share of the run."""

from __future__ import annotations

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.pauses import Pauses
from ddprof.analyzers.rules.evidence.spans import run_evidence
from ddprof.findings import Basis, Candidate, Doubt, Fix
from ddprof.tables import Array

MIN_SHARE = 0.01  # of the run's time, before pauses outside the trace are worth a finding


def is_told_by_the_run(measures: Measures, pauses: Pauses, traced_us: Array) -> bool:
    """True where the worst rank pauses over the run for a share worth a finding, and its traced steps hold less.

    `traced_us`: pauses of each rank per traced step, shape (ranks,). The replay of so little would price nothing.
    """
    return pauses.share >= MIN_SHARE and float(traced_us[pauses.position]) < MIN_SHARE * measures.step_us


def over_the_run(
    rule_id: str,
    summary: str,
    measures: Measures,
    pauses: Pauses,
    what: str,
    fix: Fix,
    is_chance: bool = False,
) -> Candidate:
    """The candidate for pauses outside the traced steps. `what`: the pauses in words, plural; `is_chance`: they may be
    on one rank alone by chance.
    """
    lost_us = pauses.share * measures.step_us
    return Candidate(
        id=rule_id,
        summary=summary,
        ranks=() if is_chance else measures.theirs(pauses.shares),
        lost_us=lost_us,
        basis=Basis.TIMED,
        evidence=(run_evidence(measures, pauses, what),),
        fixes=(fix,),
        ceiling_us=lost_us,
        times_us=() if is_chance else tuple(share * measures.step_us for share in pauses.shares),
        doubts=(Doubt.ONE_EVENT,) if pauses.count == 1 else (),
    )

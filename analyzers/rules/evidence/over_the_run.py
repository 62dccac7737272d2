"""Pauses that all fell outside the traced steps, priced by their share of the run as the capture recorded it."""

from __future__ import annotations

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.pauses import Pauses
from ddprof.analyzers.rules.evidence.spans import run_evidence
from ddprof.findings import Basis, Candidate, Doubt, Fix

MIN_SHARE = 0.01  # of the run's time, before pauses outside the trace are worth a finding


def over_the_run(
    rule_id: str,
    summary: str,
    measures: Measures,
    pauses: Pauses,
    what: str,
    fix: Fix,
    ranks: tuple[int, ...] = (),
) -> Candidate:
    """The candidate of a rule whose pauses all fell outside the trace. `what`: the pauses in words, plural; `ranks`:
    whose doing they are, where they are no chance of when each rank collects."""
    lost_us = pauses.share * measures.step_us
    return Candidate(
        id=rule_id,
        summary=summary,
        ranks=ranks,
        lost_us=lost_us,
        changes=(),
        basis=Basis.TIMED,
        evidence=(run_evidence(measures, pauses, what),),
        fixes=(fix,),
        ceiling_us=lost_us,
        doubts=(Doubt.ONE_EVENT,) if pauses.count == 1 else (),
    )

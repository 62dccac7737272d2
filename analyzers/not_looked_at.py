"""Abstentions of rules that found nothing but could see only a part of the job."""

from __future__ import annotations

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Abstention, Rule
from ddprof.units import format_ranks, format_us

FEW_NAMED = 8  # missing ranks that a sentence names; beyond it their number says more


def left_out(rule: Rule, measures: Measures) -> list[Abstention]:
    """Reasons why a rule without findings has not judged the whole job; [] where it has."""
    reason = unmatched_words(measures) if rule.reads_traffic else ""
    if rule.compares_ranks:
        reason = reason or _missing_words(measures)
    return [Abstention(rule.id, reason)] if reason else []


def unmatched_us(measures: Measures) -> float:
    """Exposed communication whose other members were not traced, us per step, where it is considerable; else 0."""
    limits = execution_of(measures.job).limits
    exposed_us = sum(t.exposed_us for t in measures.comm.traffic if t.role == "unmatched")
    return exposed_us if exposed_us > limits.min_exposed_share * measures.step_us else 0.0


def unmatched_words(measures: Measures) -> str:
    """Reason why traffic without a traced partner is not judged; "" without any."""
    lost_us = unmatched_us(measures)
    if not lost_us:
        return ""
    return (
        f"in {format_us(lost_us)} of communication per step the partner was not traced: waiting and transfer cannot be "
        "separated"
    )


def _missing_words(measures: Measures) -> str:
    job = measures.job
    if not job.missing_ranks:
        return ""
    few = len(job.missing_ranks) <= FEW_NAMED
    who = format_ranks(job.missing_ranks) if few else f"{len(job.missing_ranks)} ranks"
    return f"compared {len(job.ranks)} of {job.world_size} ranks: without {who}"

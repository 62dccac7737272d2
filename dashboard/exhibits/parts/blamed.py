"""How blame and critical path stand to the findings: who costs most is named by one, or words say why not."""

from __future__ import annotations

from ddprof.dashboard.exhibits.parts.numbers import charged_us
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.findings import WARNING_SHARE, Change, Finding
from ddprof.report import phrases
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us


def told_of(opened: OpenRun, position: int) -> str:
    """Which finding names the rank that costs the others most; where none does, what its lateness holds up."""
    rank = opened.job.rank_ids[position]
    for number, finding in enumerate(opened.report.ranked_findings(), 1):
        if rank in finding.ranks:
            return f"Finding {number} ({finding.id}) names it."
    return f"No finding names it{_on_time(opened, rank)}.{_whole_job(opened)}"


def _on_time(opened: OpenRun, rank: int) -> str:
    """What the rank's lateness costs the step, by replay: waiting is not step time."""
    if opened.pricer.error is None:
        return ""
    step_us = opened.measures.step_us
    gain_us = max(0.0, step_us - opened.pricer.step_us((Change("on_time", (rank,)),)))
    if gain_us < phrases.LEAST_SHARE * step_us:
        return ": the step would be as long if it came on time"
    why = ", as others are late too" if gain_us < WARNING_SHARE * step_us else ""
    return f": on time it would save {format_us(gain_us)} ({format_share(gain_us / step_us)}){why}"


def _whole_job(opened: OpenRun) -> str:
    lead = phrases.leading(opened.report)
    return f" Finding 1 ({lead.id}) is of the whole job." if lead and not lead.ranks else ""


def told_beyond(opened: OpenRun) -> str:
    """Findings that save more than the waiting for their ranks: what they shorten is not waiting alone."""
    job = opened.job
    cost_us = dict(zip(job.rank_ids, charged_us(job).sum(axis=1).tolist(), strict=True))
    beyond = [
        (number, finding)
        for number, finding in enumerate(opened.report.ranked_findings(), 1)
        if finding.ranks and _serious(opened, finding) and _waits_us(finding, cost_us) < finding.recoverable_us.low
    ]
    return " ".join(
        f"Finding {number} ({finding.id}) saves {format_us(finding.recoverable_us.value)}, more than the "
        f"{format_us(_waits_us(finding, cost_us))} that others wait for {format_ranks(finding.ranks)}: its fix also "
        "shortens what is not waiting."
        for number, finding in beyond
    )


def _serious(opened: OpenRun, finding: Finding) -> bool:
    return opened.report.severity_of(finding) != "info"


def _waits_us(finding: Finding, cost_us: dict[int, float]) -> float:
    return sum(cost_us.get(rank, 0.0) for rank in finding.ranks)


def off_the_path(opened: OpenRun, most: int, length_ms: Array) -> str:
    """Why the critical path runs mostly on another rank than the leading finding names; "" where it does not."""
    lead = phrases.leading(opened.report)
    if lead is None or not lead.ranks or most in lead.ranks or not length_ms.any():
        return ""
    mine = [length_ms[position] for position, rank in enumerate(opened.job.rank_ids) if rank in lead.ranks]
    return (
        f" Finding 1 ({lead.id}) names {format_ranks(lead.ranks)}, with {format_share(sum(mine) / length_ms.sum())} of "
        "the path, which may run on any rank where all work alike."
    )

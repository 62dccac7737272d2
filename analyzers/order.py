"""The order of findings, one for every screen: the headline tells of the first."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Finding, severity_of

CLEARLY_LARGER = 1.25  # a price that is an upper bound, against one that is none
MAKE_LATE = ("host", "input", "straggler")  # what bounds a step by its latest rank


def in_order(findings: Sequence[Finding], measures: Measures) -> tuple[Finding, ...]:
    """The leading finding, then the largest recoverable time first (ties: more confident, then by identifier)."""
    ranked = sorted(findings, key=lambda f: (-f.recoverable_us.value, -f.confidence, f.id))
    serious = [f for f in ranked if severity_of(f, measures.step_us) != "info"]
    lead = _lead(serious, measures) if serious else None
    return tuple(sorted(ranked, key=lambda f: f is not lead))


def _lead(serious: list[Finding], measures: Measures) -> Finding:
    """The largest finding; one whose price is a bound gives way to the next unless it is clearly larger.

    One window without step marks may hold what is done once (starting up, warming up): the host's causes, which that
    inflates, then give way to any other. That ranks take turns at being late tells what a late host, loader or device
    looks like to the others: where such a cause is known, it leads, however long they wait in all.
    """
    if measures.job.ranks[0].step_source == "inferred" and measures.steps <= 1:
        recurring = [f for f in serious if _bound(f) != "host"]
        serious = recurring or serious
    if any(_bound(f) in MAKE_LATE and not _is_bound(f) for f in serious):
        serious = [f for f in serious if not _is_symptom(f)]
    firm = [f for f in serious if not _is_bound(f)]
    if not firm or serious[0].recoverable_us.value > CLEARLY_LARGER * firm[0].recoverable_us.value:
        return serious[0]
    return firm[0]


def _bound(finding: Finding) -> str:
    rule = catalogue().get(finding.id)
    return rule.bound if rule else ""


def _is_bound(finding: Finding) -> bool:
    """Whether its price is an upper bound."""
    rule = catalogue().get(finding.id)
    return bool(rule and rule.upper_bound) or _is_symptom(finding)


def _is_symptom(finding: Finding) -> bool:
    """Whether it tells what no cause explains, and names no rank to look at."""
    rule = catalogue().get(finding.id)
    return bool(rule and rule.detect_rest) and not finding.ranks

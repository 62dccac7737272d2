"""The order of findings, one for every screen: the headline tells of the first."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Finding, severity

CLEARLY_LARGER = 1.25  # a price that is an upper bound, against one that is none


def in_order(findings: Sequence[Finding], measures: Measures) -> tuple[Finding, ...]:
    """The leading finding, then the largest recoverable time first (ties: more confident, then by identifier)."""
    ranked = sorted(findings, key=lambda f: (-f.recoverable_us.value, -f.confidence, f.id))
    serious = [f for f in ranked if severity(f.recoverable_us.value, measures.step_us) != "info"]
    lead = _lead(serious, measures) if serious else None
    return tuple(sorted(ranked, key=lambda f: f is not lead))


def _lead(serious: list[Finding], measures: Measures) -> Finding:
    """The largest finding; one whose price is a bound gives way to the next unless it is clearly larger.

    One window without step marks may hold what is done once (starting up, warming up): the host's causes, which that
    inflates, then give way to any other.
    """
    if measures.job.ranks[0].step_source == "inferred" and measures.steps <= 1:
        recurring = [f for f in serious if (rule := catalogue().get(f.id)) is None or rule.bound != "host"]
        serious = recurring or serious
    firm = [f for f in serious if (rule := catalogue().get(f.id)) is None or not rule.upper_bound]
    if not firm or serious[0].recoverable_us.value > CLEARLY_LARGER * firm[0].recoverable_us.value:
        return serious[0]
    return firm[0]

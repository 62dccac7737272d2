"""Test of a rank's lateness by its whole own time, before any cause is named.

Others wait only for a rank whose total is longer: one that loads longer but computes shorter, or loads while a peer is
busy for longer still, delays nobody.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.scope import out_of_scope
from ddprof.analyzers.job.script.alone import MOST_SHARE
from ddprof.finding_ids import INPUT_STRAGGLER, STRAGGLER_UNEXPLAINED
from ddprof.findings import Candidate
from ddprof.units import format_ranks, format_us

_BY_OWN_TIME = (INPUT_STRAGGLER, STRAGGLER_UNEXPLAINED)


def takes_longer(measures: Measures, numbers: tuple[int, ...], in_loader: bool = False) -> bool:
    """True where the own time of one of these ranks exceeds the others' by a good part of what those wait for it. A
    rank that began later but takes no longer is waited for only until it catches up. Clear whole-run timers outvote the
    few traced steps. True where own times were not recorded. `in_loader`: a good part of what it loads longer will do,
    since what it loaded before the first traced step is waited for, too.
    """
    job = measures.job
    late = [p for p, rank in enumerate(job.rank_ids) if rank in numbers]
    others = np.setdiff1d(np.arange(len(job.ranks)), late)
    if not late or not len(others) or out_of_scope(job) is not None:
        return True
    if (measures.timed_us[late] > 0).any():
        return True
    more, loads_more = (
        {p: float(us[p]) - float(np.median(us[others])) for p in late}
        for us in (measures.own_us, measures.host_spans_us["dataloader"])
    )
    asked = {p: min(float(measures.late_us[p]), loads_more[p] if in_loader else np.inf) for p in late}
    return any(us > 0 and us >= MOST_SHARE * asked[p] for p, us in more.items())


def takes_no_longer(candidate: Candidate, measures: Measures) -> str | None:
    """Reason to withdraw a finding on late ranks (they take no longer than others); None where it stands."""
    if candidate.id not in _BY_OWN_TIME or takes_longer(measures, candidate.ranks, candidate.id == INPUT_STRAGGLER):
        return None
    late = [p for p, rank in enumerate(measures.job.rank_ids) if rank in candidate.ranks]
    late_us, usual_us = measures.own_us[late].max(), np.median(np.delete(measures.own_us, late))
    why = "no rank waits for it" if late_us <= usual_us else "too little for what they wait"
    return (
        f"{format_ranks(candidate.ranks)} takes {format_us(float(late_us))} per step without waits, the others "
        f"{format_us(float(usual_us))}: {why}"
    )

"""Who is late is said by the whole of a rank's own time, before anybody says by what.

Others wait for a rank that takes longer than they do, in all and not in one thing alone: one that loads longer and
computes shorter, or that loads while a peer does something else for longer still, keeps nobody waiting.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.scope import out_of_scope
from ddprof.analyzers.job.script.alone import MOST_SHARE, lateness_us
from ddprof.findings import Candidate
from ddprof.units import format_ranks, format_us

_BY_OWN_TIME = ("input.straggler", "straggler.unexplained")


def takes_longer(measures: Measures, numbers: tuple[int, ...]) -> bool:
    """True where the own time of one of these ranks is longer than the other ranks' by a good part of what those wait
    for it. One that began later, and takes no longer, is waited for until it has caught up: no step ends earlier if it
    does. Clear timers of the whole run outvote the few traced steps. Where the ranks' own time was not recorded, it is
    taken to be longer.
    """
    job = measures.job
    late = [p for p, rank in enumerate(job.rank_ids) if rank in numbers]
    others = np.setdiff1d(np.arange(len(job.ranks)), late)
    if not late or not len(others) or out_of_scope(job) is not None:
        return True
    if (measures.timed_us[late] > 0).any():
        return True
    more = {p: float(measures.own_us[p]) - float(np.median(measures.own_us[others])) for p in late}
    return any(us > 0 and us >= MOST_SHARE * lateness_us(job.ranks, job.blame, p) for p, us in more.items())


def takes_no_longer(candidate: Candidate, measures: Measures) -> str | None:
    """Why a finding on late ranks is withdrawn; None where it stands: where they take longer."""
    if candidate.id not in _BY_OWN_TIME or takes_longer(measures, candidate.ranks):
        return None
    late = [p for p, rank in enumerate(measures.job.rank_ids) if rank in candidate.ranks]
    mine, usual = measures.own_us[late].max(), np.median(np.delete(measures.own_us, late))
    return (
        f"{format_ranks(candidate.ranks)} takes {format_us(float(mine))} per step without its waits, the other ranks "
        f"{format_us(float(usual))}: it makes nobody wait"
    )

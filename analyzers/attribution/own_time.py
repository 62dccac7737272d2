"""Who is late is said by the whole of a rank's own time, before anybody says by what.

Others wait for a rank that takes longer than they do, in all and not in one thing alone: one that loads longer and
computes shorter, or that loads while a peer does something else for longer still, keeps nobody waiting.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import MOST_SHARE, lateness_us
from ddprof.findings import Candidate
from ddprof.units import format_ranks, format_us

_BY_OWN_TIME = ("input.straggler", "straggler.unexplained")


def takes_no_longer(candidate: Candidate, measures: Measures) -> str | None:
    """Why a finding on late ranks is withdrawn; None where it stands: where their own time is longer than the other
    ranks' by a good part of what those wait for them. One that began later, and takes no longer, is waited for until it
    has caught up.
    """
    job = measures.job
    late = [p for p, rank in enumerate(job.rank_ids) if rank in candidate.ranks]
    others = np.setdiff1d(np.arange(len(job.ranks)), late)
    if not late or not len(others) or candidate.id not in _BY_OWN_TIME:
        return None
    own_us = measures.own_us
    usual_us = float(np.median(own_us[others]))
    more = {p: float(own_us[p]) - usual_us for p in late}
    if any(us > 0 and us >= MOST_SHARE * lateness_us(job.ranks, job.blame, p) for p, us in more.items()):
        return None
    mine = format_us(float(own_us[late].max()))
    return (
        f"{format_ranks(candidate.ranks)} takes {mine} per step without its waits, the other ranks "
        f"{format_us(usual_us)}: nobody waits for it because of that"
    )

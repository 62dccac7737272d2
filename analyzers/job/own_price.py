"""Gain of the job where late ranks' own time falls to the typical rank's.

Ranks that meet in every step keep the pace of the longest own time (all but communication and waiting), whether or not
the recording shows how they meet. So this holds for untraced peers too, but not for stages that work in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import averages
from ddprof.analyzers.job.measures import MEETING, Measures
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.tables import Array


def levelled_us(measures: Measures, late: Array, causes: Sequence[str]) -> float:
    """Gain per step of every rank, us, if the ranks at positions `late` spent no more on these causes of the ledger (()
    : any) than the typical rank in the same step.

    The step ends with the next rank, no earlier than half of the others; nobody gains more than it waits.
    """
    job = measures.job
    steps = min(len(facts.steps) for facts in job.ranks)
    booked = np.zeros((len(CAUSES), len(job.ranks), steps))
    rows = job.ledger.take(job.ledger["step"] < steps)
    np.add.at(booked, (rows["cause"], rows["rank"], rows["step"]), rows["dur_ns"] / 1e3)
    own_us = booked.sum(axis=0) - booked[[CAUSE_CODE[cause] for cause in MEETING]].sum(axis=0)
    mine_us = booked[[CAUSE_CODE[cause] for cause in causes]].sum(axis=0) if causes else own_us
    others = np.setdiff1d(np.arange(len(job.ranks)), late)
    if not len(others) or not len(late):
        return 0.0
    left_us = own_us.copy()
    left_us[late] -= np.maximum(0.0, mine_us - averages.typical_row(mine_us))[late]
    ends_us = np.maximum(left_us.max(axis=0), np.median(own_us[others], axis=0))
    # A blocking call is the wait of a host whose meetings left no event.
    waited_us = booked[[CAUSE_CODE[cause] for cause in (*MEETING, "host_sync")]].sum(axis=0)[others].mean(axis=1)
    return min(float(np.maximum(0.0, own_us.max(axis=0) - ends_us).mean()), float(waited_us.max()))

"""Second price of a change, from ledger and blame alone, without the replay.

A rank's step holds, booked to the causes of the ledger, the time that a change removes, and the waiting that is charged
to ranks which the change brings to time. Ranks that meet in every step gain alike, so the mean over the ranks is the
price and the rank that gains most bounds it: more than is booked anywhere cannot be won. Ranks that are named because
they are late are priced by their own time (`levelled_us`). What a host gains by running further ahead
afterwards, and what stays because something else holds the device, only the replay can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.charged import waited_us
from ddprof.analyzers.job.measures import MEETING, Measures
from ddprof.analyzers.replay.changes.booked import Booked, positions
from ddprof.analyzers.replay.changes.table import KINDS
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.findings import Change, Recoverable
from ddprof.tables import Array


@dataclass(frozen=True)
class LedgerPrice:
    """Gain in us per step: mean over the ranks, and that of the rank that gains most.

    `sees_more`: the replay cannot see the gain, as what waits for ranks without a trace stays where it was.
    """

    value: float
    most: float
    sees_more: bool = False

    def as_range(self) -> Recoverable:
        """The price as a gain with its range, which the ledger cannot extend below the mean."""
        return Recoverable(self.value, self.value, self.most)

    def widened(self, gain: Recoverable) -> Recoverable:
        """The range of a replayed gain, made to reach this price where the two disagree."""
        if self.sees_more and self.value > gain.value:
            return Recoverable(self.value, gain.low, max(gain.high, self.most))
        low, high = min(gain.low, self.most), max(gain.high, self.value)
        return Recoverable(gain.value, low, high)

    def agrees(self, gain: Recoverable) -> bool:
        """True where the range of a replayed gain meets this price."""
        return gain.low <= self.most and self.value <= gain.high


def ledger_price(measures: Measures, changes: Sequence[Change]) -> LedgerPrice | None:
    """The second price of changes; None where the ledger does not book their gain (formulas, rates), and for late ranks
    in pipelines, whose stages work in turn.
    """
    rows = [(change, kind.ledger) for change in changes if (kind := KINDS.get(change.kind)) and kind.ledger]
    by_own_time = any(change.ranks and row.levels is not None for change, row in rows)
    if not rows or len(rows) < len(changes) or (by_own_time and measures.job.pipeline is not None):
        return None
    gain = sum((_gain_us(measures, *row) for row in rows), np.zeros((2, len(measures.job.ranks))))
    gain = np.minimum(gain, measures.step_us)
    # Own time of CPU ranks holds what a busy machine took from them.
    held = by_own_time and not execution_of(measures.job).computes_on_host
    held |= any(row.is_held_by_untraced for _, row in rows)
    held &= bool(measures.job.missing_ranks)
    return LedgerPrice(float(gain[0].mean()), float(gain.max()), held)


def _gain_us(measures: Measures, change: Change, row: Booked) -> Array:
    """Time removed, and removed at most, us per step and rank, shape (2, ranks)."""
    where = positions(measures, change)
    if change.ranks and row.levels is not None:
        kept = len(where) / len(measures.job.ranks) if change.target == "spread" else 0.0  # by these ranks
        return np.full((2, len(measures.job.ranks)), (1 - kept) * levelled_us(measures, where, row.levels))
    gain, own = np.zeros((2, len(measures.job.ranks))), row.own(measures, change)
    gain[0, where] = own[where]
    gain[1, where] = (own if row.most is None else row.most(measures, change))[where]
    causes = (change.target,) if row.is_of_target else row.causes
    return gain if causes is None else gain + waited_us(measures, causes, where)


def levelled_us(measures: Measures, late: Array, causes: Sequence[str]) -> float:
    """Gain per step of every rank, us, if the ranks at positions `late` spent no more on these causes of the ledger (()
    : any) than the typical rank in the same step.

    Ranks that meet in every step keep the pace of the longest own time, whether or not the recording shows how they
    meet: so of untraced peers, too, but not of stages that work in turn. The step ends with the next rank, no earlier
    than half of the others; nobody gains more than it waits.
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

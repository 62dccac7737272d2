"""The range that a prediction is believed in, one for every command, page and file that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.charged import waited_us
from ddprof.analyzers.job.input_size import MIN_FED_SPREAD, fed_more_each_step
from ddprof.analyzers.job.measures import MEETING, Measures
from ddprof.analyzers.job.script.alone import MOST_SHARE
from ddprof.analyzers.job.whole_run.own_times import TIMED_BAND
from ddprof.analyzers.job.whole_run.pauses import Pauses, paused_shares, worst_pauses
from ddprof.analyzers.replay.changes.booked import Booked, positions
from ddprof.analyzers.replay.changes.table import KINDS, doubt_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.finding_ids import HOST_CHECKPOINT, HOST_GC, INPUT_STRAGGLER, STRAGGLER_HOST, STRAGGLER_IMBALANCE
from ddprof.findings import Basis, Candidate, Change, Recoverable
from ddprof.sidecar import Pause, Sidecar
from ddprof.tables import Array

# Second price of a change, from ledger and blame alone, without the replay.
#
# A rank's step holds, booked to the causes of the ledger, the time that a change removes, and the waiting that is
# charged to ranks which the change brings to time. Ranks that meet in every step gain alike, so the mean over the ranks
# is the price and the rank that gains most bounds it: more than is booked anywhere cannot be won. Ranks that are named
# because they are late are priced by their own time (`levelled_us`). What a host gains by running further ahead
# afterwards, and what stays because something else holds the device, only the replay can see.


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


LATE = (STRAGGLER_HOST, STRAGGLER_IMBALANCE, INPUT_STRAGGLER)
# Finding -> the cause of its host spans, and these pauses as capture recorded them over the whole run.
PAUSES: Mapping[str, tuple[str, Callable[[Sidecar], Sequence[Pause]]]] = {
    HOST_CHECKPOINT: ("checkpoint", lambda sidecar: sidecar.checkpoints),
    HOST_GC: ("gc", lambda sidecar: sidecar.gc),
}


def of_candidate(prices: Pricer, candidate: Candidate, gain_us: float, is_alone: bool = True) -> Recoverable:
    """Gain of a finding with its range; `is_alone`: no other change, so that the ledger prices it too."""
    if candidate.most_us == 0:
        return Recoverable(0.0, 0.0, 0.0)
    by_ledger = ledger_price(prices.measures, candidate.changes) if is_alone else None
    doubt_us = gain_us * max(candidate.band, doubt_of(candidate.changes, prices.measures))
    # What was timed and not replayed has neither the replay's error nor the spread of the traced steps in it.
    if candidate.basis is not Basis.TIMED or candidate.changes:
        doubt_us += _replay_us(prices, gain_us)
    gain = believed(prices, candidate.changes, gain_us, doubt_us, by_ledger)
    if is_alone and (paused := pauses_of(prices.measures, candidate)) is not None:
        return _by_pauses(prices, candidate, gain, paused)
    return _raised(prices, candidate, gain, gain)


def of_unprofiled(prices: Pricer, candidate: Candidate, gain: Recoverable, is_alone: bool) -> Recoverable | None:
    """Gain of a finding in a step without the profiler; None where no such step was timed. `gain`: of a traced step.

    Pauses and lateness that are known of the whole run are of steps without it: they take the same share of one.
    """
    unprofiled = prices.unprofiled_gain(candidate, gain)
    if prices.unprofiled is None or unprofiled is None:
        return None
    share = prices.unprofiled.step_us / prices.measures.step_us
    if is_alone and pauses_of(prices.measures, candidate) is not None:
        return Recoverable(share * gain.value, share * gain.low, share * gain.high)
    return _raised(prices, candidate, gain, unprofiled, share)


def pauses_of(measures: Measures, candidate: Candidate) -> Pauses | None:
    """The pauses that capture recorded over the whole run, of which a finding on traced steps is; None without such."""
    if candidate.id not in PAUSES or not candidate.changes:
        return None
    return worst_pauses(measures.job.ranks, PAUSES[candidate.id][1])


def _by_pauses(prices: Pricer, candidate: Candidate, gain: Recoverable, paused: Pauses) -> Recoverable:
    """The gain from pauses that are known of the whole run: how often they come and how long they last is not what a
    few traced steps happen to hold. Others wait for CPU ranks that pause; where a device works meanwhile, the replay
    of the traced steps tells what a pause costs.
    """
    measures = prices.measures
    most = max(0.0, measures.step_us - prices.floor_us(candidate.changes))
    share = paused.share if candidate.ranks else paused.share_of_job
    run_us, traced_us = share * measures.step_us, measures.host_spans_us[PAUSES[candidate.id][0]]
    if not execution_of(measures.job).computes_on_host:
        if not len(paused.shares) or not traced_us.any():
            return gain
        run_us = gain.value * float(np.mean(paused.shares) * measures.step_us / traced_us.mean())
    run_us = min(run_us, most)
    band = max(TIMED_BAND, paused.count**-0.5)
    low, high = max(0.0, 1 - band) * run_us, min((1 + band) * run_us, most)
    value = gain.value if low <= gain.value <= high else run_us
    return Recoverable(value, low, high)


def _late_us(prices: Pricer, candidate: Candidate, gain: Recoverable, most_us: float) -> float:
    """Time of a traced step by which the timers of the whole run show a rank late beyond chance, where a finding
    explains most of it or names what the rank alone has: they have neither the replay's error nor the scatter of few
    steps. 0 elsewhere.
    """
    measures = prices.measures
    blamed = [p for p, rank in enumerate(measures.job.rank_ids) if rank in candidate.ranks]
    in_loader = candidate.id == INPUT_STRAGGLER
    timed_us = measures.loading_late_us if in_loader else measures.timed_us
    if not blamed or not timed_us[blamed].all():
        return 0.0
    if not in_loader:  # pauses have findings of their own
        paused_us = paused_shares(measures.job.ranks) * measures.step_us
        timed_us = timed_us - np.maximum(0.0, paused_us - averages.typical(paused_us))
    late_us = min(float(timed_us[blamed].min()), most_us)
    has_more = fed_more_each_step(measures.job.ranks, MIN_FED_SPREAD)
    is_named = in_loader or all(p in measures.alone or has_more[p] for p in blamed)
    return late_us if late_us > 0 and (gain.value >= MOST_SHARE * late_us or is_named) else 0.0


def _raised(
    prices: Pricer, candidate: Candidate, gain: Recoverable, raised: Recoverable, share: float = 1.0
) -> Recoverable:
    """The gain `raised` to no less than what timers show a rank late by. `gain`: of the traced step, of which the step
    that is meant takes a `share`.
    """
    if candidate.id not in LATE or not execution_of(prices.measures.job).computes_on_host:
        return raised  # the host of a device may be late and nobody waits, as the device still has work
    most_us = prices.measures.step_us - prices.floor_us(candidate.changes)
    late_us = share * _late_us(prices, candidate, gain, most_us)
    least = (1 - TIMED_BAND) * late_us
    if raised.value < least:
        return Recoverable(late_us, least, max(raised.high, min((1 + TIMED_BAND) * late_us, share * most_us)))
    if not late_us:
        return raised
    return Recoverable(raised.value, max(raised.low, min(raised.value, least)), max(raised.high, late_us))


def of_step(prices: Pricer, changes: tuple[Change, ...], step_us: float, doubt_us: float) -> tuple[float, float]:
    """Least and most (us) that the predicted step after some changes is believed to be: by the finding that proposes
    them, where there is one.

    What is changed together on the same ranks (a device with its host) saves what the ledger says of the dearest part.
    """
    of_finding = prices.told_price(changes)
    if of_finding is not None:
        return prices.measures.step_us - of_finding.gain.high, prices.measures.step_us - of_finding.gain.low
    is_one = len(changes) == 1 or (len({change.ranks for change in changes}) == 1 and bool(changes[0].ranks))
    priced = [ledger_price(prices.measures, (change,)) for change in changes] if is_one else []
    by_ledger = max((price for price in priced if price is not None), key=lambda price: price.value, default=None)
    gain_us = prices.measures.step_us - step_us
    gain = believed(prices, changes, gain_us, doubt_us + _replay_us(prices, gain_us), by_ledger)
    return prices.measures.step_us - gain.high, prices.measures.step_us - gain.low


def believed(
    prices: Pricer,
    changes: Sequence[Change],
    gain_us: float,
    doubt_us: float,
    by_ledger: LedgerPrice | None = None,
) -> Recoverable:
    """A gain (us, negative for a loss) with its range: the prediction's uncertainty and, on CPU ranks, side effects.

    The range includes the ledger's price where that differs. Its lower end is no loss for a gain, and it leaves at
    least compute and unavoidable transfer of the step.
    """
    measures = prices.measures
    margin = doubt_us + _drift_us(measures, gain_us)
    low, high = gain_us - margin, gain_us + margin
    gain = Recoverable(gain_us, max(0.0, low) if gain_us >= 0 else low, high)
    if by_ledger is not None and gain_us >= 0 and not by_ledger.agrees(gain):
        gain = by_ledger.widened(gain)
    most = max(gain.value, measures.step_us - prices.floor_us(tuple(changes)))
    return Recoverable(gain.value, gain.low, min(most, gain.high))


def _replay_us(prices: Pricer, gain_us: float) -> float:
    """Doubt of a replayed gain: the error of the replay, and the spread of the steps it replays."""
    error_us = (prices.error or 0.0) * prices.measures.step_us
    steps_us = np.array(prices.measures.job.per_step_ns, float) / 1e3
    spread_us = float(steps_us.std(ddof=1)) / np.sqrt(max(1, prices.measures.steps)) if len(steps_us) > 1 else 0.0
    return float(error_us + min(spread_us, 0.25 * abs(gain_us)))


def _drift_us(measures: Measures, gain_us: float) -> float:
    """Doubt about other effects on CPU ranks when so much of the step goes; grows with it."""
    step_us = measures.step_us
    if step_us <= 0 or gain_us <= 0:
        return 0.0
    drift = execution_of(measures.job).limits.drift
    return drift * max(0.0, step_us - gain_us) * min(1.0, 2 * gain_us / step_us)

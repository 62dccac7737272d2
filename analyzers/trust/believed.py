"""The range that a prediction is believed in, one for every command, page and file that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.input_size import MIN_FED_SPREAD, fed_more_each_step
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import MOST_SHARE
from ddprof.analyzers.job.whole_run.own_times import TIMED_BAND
from ddprof.analyzers.job.whole_run.pauses import Pauses, paused_shares, worst_pauses
from ddprof.analyzers.replay.changes.table import doubt_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.trust.ledger_price import LedgerPrice, ledger_price
from ddprof.finding_ids import HOST_CHECKPOINT, HOST_GC, INPUT_STRAGGLER, STRAGGLER_HOST, STRAGGLER_IMBALANCE
from ddprof.findings import Basis, Candidate, Change, Recoverable
from ddprof.sidecar import Pause, Sidecar

LATE = (STRAGGLER_HOST, STRAGGLER_IMBALANCE, INPUT_STRAGGLER)
# Finding -> the cause of its host spans, and these pauses as capture recorded them over the whole run.
PAUSES: Mapping[str, tuple[str, Callable[[Sidecar], Sequence[Pause]]]] = {
    HOST_CHECKPOINT: ("checkpoint", lambda sidecar: sidecar.checkpoints),
    HOST_GC: ("gc", lambda sidecar: sidecar.gc),
}


def of_candidate(prices: Pricer, candidate: Candidate, gain_us: float, is_alone: bool = True) -> Recoverable:
    """Gain of a finding with its range; `is_alone`: no other change, so that the ledger prices it too."""
    if candidate.ceiling_us == 0:
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
    """Least and most (us) that the predicted step after some changes is believed to be: as the finding says that is of
    them, where there is one.

    What is changed together on the same ranks (a device with its host) saves what the ledger says of the dearest part.
    """
    told = prices.told_price(changes)
    if told is not None:
        return prices.measures.step_us - told.gain.high, prices.measures.step_us - told.gain.low
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

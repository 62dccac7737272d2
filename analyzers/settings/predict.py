"""A run with settings changed: the step after each change in turn, and the range of the last prediction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ddprof.analyzers.replay.changes.table import doubt_of
from ddprof.analyzers.replay.price import LOW_CONFIDENCE_ERROR, Pricer
from ddprof.analyzers.settings.buckets import schedule_bias
from ddprof.analyzers.settings.knobs import BY_KEY, Setting
from ddprof.analyzers.settings.present import Present
from ddprof.analyzers.trust.believed import of_step
from ddprof.errors import NoUsableInput
from ddprof.findings import Change, differs


class Level(Struct, frozen=True):
    """The step (us) with this change and all before it."""

    key: str
    words: str
    assumption: str
    step_us: float


class Prediction(Struct, frozen=True):
    """A predicted step with its range; `levels` build up to it, `changes` are what was replayed. `unprofiled_us`: the
    step without the profiler, before and after; None where none was timed, or it is as long.
    """

    before_us: float
    after_us: float
    low_us: float
    high_us: float
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]
    replay_error: float
    unprofiled_us: tuple[float, float] | None = None

    @property
    def gain_us(self) -> float:
        """Step time saved; negative where the change costs time."""
        return self.before_us - self.after_us

    @property
    def is_uncertain(self) -> bool:
        """True where the replay misses even the unmodified run."""
        return self.replay_error > LOW_CONFIDENCE_ERROR


def predict(prices: Pricer, settings: Sequence[Setting], now: Present) -> Prediction:
    """Predict the step under all settings at once; their gains are never added up.

    The range holds each change's own doubt, the replay's error and the spread of the steps. Raises UsageError for
    settings that make no sense in this run, NoUsableInput where it cannot be replayed.
    """
    if prices.error is None:
        raise NoUsableInput("this run cannot be replayed: it has no measured step with work in it")
    before_us = prices.step_us(())
    levels: list[Level] = []
    applied: tuple[Change, ...] = ()
    doubt_us = 0.0
    reached = before_us
    for setting in settings:
        knob = BY_KEY[setting.key]
        changes = knob.changes(setting, prices.measures, now)
        applied = _with(applied, knob.key, changes)
        # Other buckets are priced against the run's own, as in their plan.
        is_rebucketed = any(change.kind == "rebucket" for change in applied)
        step_us = prices.told_step_us(applied) * (schedule_bias(prices, now) if is_rebucketed else 1.0)
        doubt_us += doubt_of(changes, prices.measures) * abs(reached - step_us)
        ranks = f" @ {','.join(map(str, setting.ranks))}" if setting.ranks else ""
        levels.append(Level(knob.key, f"{knob.key} = {setting.value}{ranks}", knob.assumption, step_us))
        reached = step_us
    low_us, high_us = of_step(prices, applied, reached, doubt_us)
    return Prediction(
        before_us=before_us,
        after_us=reached,
        low_us=low_us,
        high_us=high_us,
        levels=tuple(levels),
        changes=applied,
        replay_error=prices.error,
        unprofiled_us=_unprofiled(prices, applied),
    )


def _unprofiled(prices: Pricer, changes: tuple[Change, ...]) -> tuple[float, float] | None:
    bare_us, told = prices.bare_us, prices.told_price(changes)
    if bare_us is None or not differs(bare_us, prices.measures.step_us):
        return None
    if told is not None and told.unprofiled is not None:
        return bare_us, bare_us - told.unprofiled.value
    after_us = prices.unprofiled_us(changes)
    return None if after_us is None else (bare_us, after_us)


# Settings that share one change: which of its values each of them is.
_SLOT = {
    "num_workers": 0,
    "prefetch_factor": 1,
    "bucket_cap_mb": 0,
    "first_bucket_mb": 1,
    "microbatches": 0,
    "interleave": 1,
}


def _with(applied: tuple[Change, ...], key: str, more: tuple[Change, ...]) -> tuple[Change, ...]:
    """Workers and prefetch, cap and first bucket, microbatches and chunks become one change."""
    result = list(applied)
    for change in more:
        same = next((c for c in result if key in _SLOT and c.kind == change.kind), None)
        if same is None:
            result.append(change)
            continue
        slot = _SLOT[key]
        values = (*same.values[:slot], change.values[slot], *same.values[slot + 1 :])
        result[result.index(same)] = Change(change.kind, (), values)
    return tuple(result)

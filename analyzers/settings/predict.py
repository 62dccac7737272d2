"""A run with settings changed: the step after each change in turn, and the range of the last prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.table import doubt_of
from ddprof.analyzers.replay.price import LOW_CONFIDENCE_ERROR, Pricer
from ddprof.analyzers.settings.curves import schedule_bias
from ddprof.analyzers.settings.knobs import BY_KEY, KNOBS, Knob, Setting, parse_setting
from ddprof.analyzers.settings.present import Present
from ddprof.analyzers.trust.believed import of_step
from ddprof.errors import DdprofError, NoUsableInput, UsageError
from ddprof.findings import Change, Finding, Fix, differs
from ddprof.settings.catalogue import APPLIED_AS, ASKED_AS


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
    bare_us, price = prices.bare_us, prices.told_price(changes)
    if bare_us is None or not differs(bare_us, prices.measures.step_us):
        return None
    if price is not None and price.unprofiled is not None:
        return bare_us, bare_us - price.unprofiled.value
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


# Everything that a what-if of one run can change: as recorded, as its findings suggest, or the reason why not.

ROUNDED = 1e-3  # of a time: reports hold three digits after the microsecond


class Offer(Struct, frozen=True):
    """One setting to change. `lacking`: why it has no effect, "" where it has. `current`: as recorded, in words.
    `suggested`: the value that the first finding advises; `because`: that finding's number.
    """

    knob: Knob
    lacking: str = ""
    current: str = ""
    suggested: Setting | None = None
    because: int | None = None


def text_of(setting: Setting) -> str:
    """The setting on the command line of `ddprof whatif --set`: "compute=1.3@5"."""
    ranks = f"@{','.join(map(str, setting.ranks))}" if setting.ranks else ""
    return f"{setting.key}={setting.value}{ranks}"


def applied_as(setting: Setting) -> str:
    """The setting on the command line of `ddprof run --set`, which takes fewer settings."""
    text = text_of(setting)
    return APPLIED_AS.get(text, text)


def offers(prices: Pricer, now: Present, findings: Sequence[Finding]) -> tuple[Offer, ...]:
    """One for every knob, in their order. `findings`: the most important one first."""
    wanted: dict[str, tuple[Setting, int]] = {}
    for number, finding in enumerate(findings):
        for setting in remedies(finding, prices, now):
            wanted.setdefault(setting.key, (setting, number))
    return tuple(_offer(knob, prices.measures, now, wanted.get(knob.key)) for knob in KNOBS)


def remedies(finding: Finding, prices: Pricer, now: Present) -> tuple[Setting, ...]:
    """Settings whose replayed gain is the finding's: those of its first fix, else one that removes its cause.

    () where none gains as much, as a rule may bound its price by other knowledge than the replay.
    """
    measures = prices.measures
    choices = [list(_stated(fix)) for fix in finding.fixes]
    mending = [knob for knob in KNOBS if finding.id in knob.mends and not knob.lacking(measures, now)]
    choices += [[_gone(knob, finding, measures)] for knob in mending]
    for settings in choices:
        if settings and _gains_as_said(tuple(settings), finding, prices, now):
            return tuple(settings)
    return ()


def _offer(knob: Knob, measures: Measures, now: Present, wanted: tuple[Setting, int] | None) -> Offer:
    why = knob.lacking(measures, now)
    if why:
        return Offer(knob, why)
    setting, number = wanted or (None, None)
    return Offer(knob, "", knob.current(measures, now), setting, number)


def _stated(fix: Fix) -> Iterator[Setting]:
    """The values that a fix states, one for each thing to change."""
    texts = [f"{fix.setting}={fix.suggested}", *(_asked_as(name, value) for name, value in fix.applies)]
    keys: set[str] = set()
    for text in texts:
        try:
            setting = parse_setting(text)
        except UsageError:
            continue
        if setting.key not in keys:
            keys.add(setting.key)
            yield setting


def _asked_as(name: str, value: object) -> str:
    text = f"{name}={str(value).lower() if isinstance(value, bool) else value}"
    return ASKED_AS.get(text, f"{name}={value}")


def _gone(knob: Knob, finding: Finding, measures: Measures) -> Setting:
    """Setting that removes the cause, on the finding's ranks where it can name ranks."""
    value = knob.values if knob.is_switch else next(iter(knob.choices), "")
    ranks = finding.ranks if knob.for_ranks and len(finding.ranks) < len(measures.job.rank_ids) else ()
    return Setting(knob.key, value, ranks)


def _gains_as_said(settings: tuple[Setting, ...], finding: Finding, prices: Pricer, now: Present) -> bool:
    """True where the settings are possible in this run and reach the finding's gain."""
    gain = finding.alone_us or finding.recoverable_us
    try:
        gain_us = predict(prices, settings, now).gain_us
    except DdprofError:
        return False
    return gain_us > 0 and gain.low * (1 - ROUNDED) <= gain_us <= gain.high * (1 + ROUNDED)

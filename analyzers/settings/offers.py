"""Everything that a what-if of one run can change: as recorded, as its findings suggest, or the reason why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.knobs import KNOBS, Knob, Setting, parse_setting
from ddprof.analyzers.settings.predict import predict
from ddprof.analyzers.settings.present import Present
from ddprof.errors import DdprofError, UsageError
from ddprof.findings import Finding, Fix
from ddprof.settings.catalogue import APPLIED_AS, ASKED_AS

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

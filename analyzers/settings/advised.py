"""Fixes as they are planned: a setting that a plan can work out has one advised value, in the finding as in the plan.

A rule sees the cause and names the setting; what value of it the run would be fastest with only the replay of the run
knows. Where no value is clearly faster, the setting is no fix, and what helps beside it takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ddprof.analyzers.replay.changes.communication.transfers import BY_HOOKS
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.curves import plan_buckets, plan_loader
from ddprof.analyzers.settings.present import Present, present
from ddprof.errors import DdprofError
from ddprof.findings import Alters, Fix

Advice = tuple[float, bool]  # the value, and whether it is the one that the run had, or no faster


def planned(fixes: tuple[Fix, ...], prices: Pricer) -> tuple[Fix, ...]:
    """The fixes of a finding with the values that `ddprof plan` advises, where the run can be planned; without workers
    no queue of theirs."""
    chosen = [_planned(fix, prices) for fix in fixes]
    lacks_workers = any(a.current == "0" and b is _BESIDE["num_workers"] for a, b in zip(fixes, chosen, strict=True))
    return tuple(fix for fix in chosen if not (lacks_workers and fix.setting == "prefetch_factor"))


def _planned(fix: Fix, prices: Pricer) -> Fix:
    """The fix with the value that would make the run clearly faster, where that is known; what helps beside the setting
    where none would.
    """
    plan = _PLANS.get(fix.setting)
    if plan is None or not fix.applies or prices.error is None:
        return fix
    try:
        value, is_present = plan(prices, present(prices.measures, {}))
    except DdprofError:
        return fix  # what a batch or a message costs is not known: the rule's own value stands
    if is_present:
        return _BESIDE[fix.setting]
    return fix if f"{value:g}" == fix.suggested else _with_value(fix, value)


def _with_value(fix: Fix, value: float) -> Fix:
    text, kind = f"{value:g}", type(dict(fix.applies)[fix.setting])
    patch = fix.patch and fix.patch.replace(f"{fix.setting}={fix.suggested}", f"{fix.setting}={text}")
    applies = tuple((name, kind(value) if name == fix.setting else given) for name, given in fix.applies)
    return replace(fix, suggested=text, patch=patch, applies=applies)


def _workers(prices: Pricer, now: Present) -> Advice:
    plan = plan_loader(prices, now)
    return plan.advised_workers, plan.advised_workers == plan.workers.now or plan.advised_us >= plan.step_us


def _buckets(prices: Pricer, now: Present) -> Advice:
    plan = plan_buckets(prices, now)
    return plan.advised_mb, plan.advised_mb == plan.caps.now or plan.advised_us >= plan.step_us


_PLANS: Mapping[str, Callable[[Pricer, Present], Advice]] = {"num_workers": _workers, "bucket_cap_mb": _buckets}
_BESIDE = {
    "num_workers": Fix(
        setting="cost of a batch",
        suggested="cache, decode less, augment on the device",
        why="replayed with other numbers of workers, the step is not clearly shorter",
        source="ddprof plan loader",
        alters=Alters.KEPT,
    ),
    "bucket_cap_mb": BY_HOOKS,
}

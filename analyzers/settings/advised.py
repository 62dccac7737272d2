"""Fixes as they are planned: a setting that a plan can work out has one advised value, in the finding as in the plan.

A rule sees the cause and names the setting; what value of it the run would be fastest with only the replay of the run
knows. Where no value is clearly faster, the setting is no fix, and what helps beside it takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ddprof.analyzers.replay.changes.communication.transfers import BY_HOOKS, ENOUGH_COMPUTE
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.curves import plan_buckets, plan_loader
from ddprof.analyzers.settings.present import Present, present
from ddprof.errors import DdprofError
from ddprof.findings import Alters, Candidate, Fix
from ddprof.units import format_us

_AS_IT_IS = math.nan  # compared by identity
Advice = tuple[float, bool]  # the value, and whether it is the one that the run had, or no faster


def planned(fixes: tuple[Fix, ...], prices: Pricer) -> tuple[Fix, ...]:
    """The fixes of a finding with the values that `ddprof plan` advises, where the run can be planned; without workers
    no queue of theirs."""
    chosen = [_planned(fix, prices) for fix in fixes]
    lacks_workers = any(a.current == "0" and b is _BESIDE["num_workers"] for a, b in zip(fixes, chosen, strict=True))
    return tuple(fix for fix in chosen if not (lacks_workers and fix.setting == "prefetch_factor"))


def out_of_reach(candidate: Candidate, prices: Pricer) -> str | None:
    """Reason why no setting reaches the gain of a finding; None where one may.

    DDP hides gradients as far as bucket sizes allow: where no size makes the step clearly shorter, the gain of an
    earlier reduction is out of reach. So is it where the passes that compute these gradients hide little of them: after
    several micro-batches only the last one does.
    """
    if [change.kind for change in candidate.changes] != ["overlap"]:
        return None
    hidden_us = prices.gain_us(candidate)
    other = candidate.instead if hidden_us < ENOUGH_COMPUTE * candidate.lost_us else None
    if other is not None and hidden_us < prices.gain_us(other):
        return f"compute beside an earlier start would hide {format_us(hidden_us)} of {format_us(candidate.lost_us)}"
    of_ddp = [fix for fix in candidate.fixes if fix.setting == "bucket_cap_mb" and fix.current is not None]
    if not of_ddp or any(_advice(fix, prices) is not _AS_IT_IS for fix in of_ddp):
        return None
    return f"DDP reduces during the backward pass already, and {_BESIDE['bucket_cap_mb'].why}"


def _planned(fix: Fix, prices: Pricer) -> Fix:
    value = _advice(fix, prices)
    if value is _AS_IT_IS:
        return _BESIDE[fix.setting]
    return fix if value is None or f"{value:g}" == fix.suggested else _with_value(fix, value)


def _advice(fix: Fix, prices: Pricer) -> float | None:
    """The value that would make the run clearly faster: None where that is not known, _AS_IT_IS where none would."""
    plan = _PLANS.get(fix.setting)
    if plan is None or not fix.applies or prices.error is None:
        return None
    now = present(prices.measures, {})
    if _is_of_another_rank(fix, now):
        return None
    try:
        value, is_present = plan(prices, now)
    except DdprofError:
        return None  # what a batch or a message costs is not known: the rule's own value stands
    return _AS_IT_IS if is_present else value


def _is_of_another_rank(fix: Fix, now: Present) -> bool:
    """True where the fix is of a rank with another value than the run's, for which a plan is made."""
    planned_for = getattr(now, fix.setting)
    try:
        of_rank = float(fix.current or "")
    except ValueError:  # not recorded, or a word of a rule from elsewhere
        return False
    return planned_for is not None and not math.isclose(of_rank, planned_for, rel_tol=1e-3, abs_tol=1e-4)


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

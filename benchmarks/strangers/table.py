"""The judgements in tables, each share with its 95 % interval (Clopper-Pearson)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from benchmarks.strangers.judge import Judgement

_GROUPS: dict[str, Callable[[Judgement], str]] = {
    "loop": lambda one: one.spec.loop,
    "batches": lambda one: one.spec.source,
    "fault": lambda one: one.spec.fault,
    "place": lambda one: one.spec.where,
    "who": lambda one: one.spec.who,
    "when": lambda one: one.spec.when,
}


def lines(judged: Sequence[Judgement], is_long: bool) -> Iterator[str]:
    """Totals, then the tables by structure, fault, place, who and when; with `is_long` every wrong verdict."""
    asked = [one for one in judged if one.is_asked]
    yield f"{len(judged)} scripts, {len(asked)} with a fault of 8 % of the step or more"
    for name, right in (
        ("ranks, line and mechanism", [one.is_right for one in asked]),
        ("ranks", [one.ranks for one in asked]),
        ("line", [one.line for one in asked]),
        ("mechanism", [one.mechanism for one in asked]),
        ("gain, where these are right", [bool(one.gain) for one in asked if one.is_right]),
    ):
        yield f"  {name}: {_share(right)}"
    yield f"  twins in which a rank is accused: {sum(bool(one.accused) for one in judged)} of {len(judged)}"
    yield f"  twins with a loud finding on the whole job: {sum(bool(one.loud) for one in judged)} of {len(judged)}"
    for title, key in _GROUPS.items():
        yield f"\n{title}"
        for name in sorted({key(one) for one in asked}):
            yield f"  {name:28} {_share([one.is_right for one in asked if key(one) == name])}"
    if is_long:
        for one in judged:
            yield from _told(one)


def _told(one: Judgement) -> Iterator[str]:
    """Wrong findings on a script."""
    spec = one.spec
    if one.is_asked and not (one.is_right and one.gain):
        marks = " ".join(f"{name}={getattr(one, name)}" for name in ("ranks", "line", "mechanism", "gain"))
        how = f"{spec.amount_ms} ms {spec.when}{', helper' if spec.in_helper else ''}; step {one.step_ms:.1f} ms"
        what = f"{spec.fault} in {spec.where} of {spec.who}, {how}, {one.share:.0%}"
        yield f"\n{spec.number:04} [{spec.structure}] {what}"
        yield f"  {marks}\n  " + one.said.replace("\n", "\n  ")
    if one.accused or one.loud:
        yield f"\n{spec.number:04} twin [{spec.structure}], {one.step_ms * (1 - one.share):.1f} ms"
        yield "  " + one.twin_said.replace("\n", "\n  ")


def _share(right: Sequence[bool]) -> str:
    """`k of n = x % [low, high]`."""
    k, n = sum(right), len(right)
    if not n:
        return "0 of 0"
    return f"{k} of {n} = {k / n:.0%} [{_bound(k, n, 0.975):.0%}, {_bound(k, n, 0.025):.0%}]"


def _bound(k: int, n: int, chance: float) -> float:
    """The p at which at most `k` of `n` (above a half: at least) have 2.5 %; by bisection, exact."""
    if (chance > 0.5 and k == 0) or (chance < 0.5 and k == n):
        return 0.0 if chance > 0.5 else 1.0
    most = k - 1 if chance > 0.5 else k
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2
        below = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(most + 1))
        low, high = (p, high) if below > chance else (low, p)
    return low

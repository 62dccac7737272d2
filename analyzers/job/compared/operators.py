"""Operators of CPU ranks, rank against rank: which a rank runs more of, and how much larger its tensors are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.tables import Array

Ran = dict[tuple[str, str], tuple[float, float]]  # (operator, shapes) -> (how often, ns)


def operators_run(facts: RankFacts, steps: int) -> Ran:
    """What a rank ran in its first `steps` steps. Shapes are "" where they were not recorded."""
    ops, inside = facts.host_operators, _step_of(facts)
    mine = np.flatnonzero((inside >= 0) & (inside < steps))
    pairs = (ops["name"][mine].astype(np.int64) << 32) + np.where(
        ops["shape"][mine] == NO_STRING, 2**31, ops["shape"][mine].astype(np.int64)
    )
    named, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    spent = np.bincount(which, weights=ops["dur_ns"][mine], minlength=len(named))
    found: Ran = {}
    for pair, count, ns in zip(named.tolist(), counts.tolist(), spent.tolist(), strict=True):
        name, shape = divmod(pair, 2**32)
        found[facts.strings[name], "" if shape == 2**31 else facts.strings[shape]] = (float(count), ns)
    return found


def tensor_elements(ranks: Sequence[RankFacts]) -> Array | None:
    """Elements of what the operators were given in each step, of those operators and shapes that not all ranks have,
    float, shape (ranks, steps). Weights, which all ranks have alike, count nowhere.

    None where ranks do not run the same operators equally often, or all of them have the same shapes.
    """
    steps = min((len(facts.steps) for facts in ranks), default=0)
    ran = [operators_run(facts, steps) for facts in ranks]
    if not steps or len(ranks) < 2 or not all(ran) or len({frozenset(_by_name(one).items()) for one in ran}) > 1:
        return None
    shared = set.intersection(*(set(one) for one in ran))
    found = np.array([_elements_by_step(facts, shared, steps) for facts in ranks])
    return found if (found > 0).all() else None


def _by_name(ran: Ran) -> dict[str, float]:
    total: dict[str, float] = {}
    for (name, _), (count, _) in ran.items():
        total[name] = total.get(name, 0.0) + count
    return total


def _elements_by_step(facts: RankFacts, shared: set[tuple[str, str]], steps: int) -> Array:
    ops, inside, text = facts.host_operators, _step_of(facts), facts.strings
    mine = np.flatnonzero((inside >= 0) & (inside < steps) & (ops["shape"] != NO_STRING))
    pairs = zip(ops["name"][mine].tolist(), ops["shape"][mine].tolist(), strict=True)
    each = [0.0 if (text[name], text[shape]) in shared else elements(text[shape]) for name, shape in pairs]
    return np.bincount(inside[mine], weights=each, minlength=steps)[:steps]


@lru_cache(maxsize=4096)
def elements(shapes: str) -> float:
    """Elements of all tensors in a text of shapes ("[[8, 120], []]"); 0 of what is none."""
    try:
        dims = json.loads(shapes)
    except ValueError:
        return 0.0
    tensors = [one for one in dims if isinstance(one, list) and one] if isinstance(dims, list) else []
    return float(sum(np.prod([d for d in one if isinstance(d, int)], dtype=float) for one in tensors))


def _step_of(facts: RankFacts) -> Array:
    """The step in which each operator began; -1 outside."""
    start = facts.host_operators["start_ns"]
    at = np.searchsorted(facts.steps["start_ns"], start, side="right") - 1
    until = np.append(facts.steps["end_ns"], 0)[at]
    return np.where((at >= 0) & (start < until), at, -1)

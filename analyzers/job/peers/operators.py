"""Operators of CPU ranks, rank against rank: how many each runs, and the sizes of their tensors."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.derived_once import remembered
from ddprof.tables import Array, distinct

MOST_SHARE = (
    0.9  # of a rank's time: one that spends more on what its peers do not run runs another program (slowdown.py)
)
Tensor = tuple[int, ...]  # its shape
Argument = tuple[str, int, Tensor]  # operator, place, shape
Ran = dict[tuple[str, str], tuple[float, float]]  # (operator, shapes) -> (how often, ns)


@remembered
def operators_run(facts: RankFacts, steps: int) -> Ran:
    """Operators of a rank's first `steps` steps. Shapes are "" where not recorded."""
    ops = facts.host_operators
    if not len(ops):
        return {}
    inside = _step_of(facts)
    rows = np.flatnonzero((inside >= 0) & (inside < steps))
    pairs = (ops["name"][rows].astype(np.int64) << 32) + np.where(
        ops["shape"][rows] == NO_STRING, 2**31, ops["shape"][rows].astype(np.int64)
    )
    named, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    spent = np.bincount(which, weights=ops["dur_ns"][rows], minlength=len(named))
    ran: Ran = {}
    for pair, count, ns in zip(named.tolist(), counts.tolist(), spent.tolist(), strict=True):
        name, shape = divmod(pair, 2**32)
        ran[facts.strings[name], "" if shape == 2**31 else facts.strings[shape]] = (float(count), ns)
    return ran


def tensor_elements(ranks: Sequence[RankFacts]) -> Array | None:
    """Elements of operators' tensors per step, without tensors that all ranks have (weights); float, shape (ranks,
    steps).

    None where ranks differ clearly in the operators they run, or all have equal shapes. Enlarging a batch may add an
    operator.
    """
    steps = min(len(facts.steps) for facts in ranks)
    ran = [operators_run(facts, steps) for facts in ranks]
    if len(ranks) < 2 or not all(ran):
        return None
    counts = [_by_name(one) for one in ran]
    alike = {name for name, count in counts[0].items() if all(other.get(name) == count for other in counts[1:])}
    kept = [{key: each for key, each in one.items() if key[0] in alike} for one in ran]
    if any(_time_ns(some) < MOST_SHARE * _time_ns(every) for some, every in zip(kept, ran, strict=True)):
        return None
    ran = kept
    given = [_tensors_given(one) for one in ran]
    shares = [{key: 1 - min(one.get(key, 0.0) for one in given) / n for key, n in counted.items()} for counted in given]
    elements = np.array([_elements_by_step(facts, share, steps) for facts, share in zip(ranks, shares, strict=True)])
    return elements if (elements > 0).all() else None


def _time_ns(ran: Ran) -> float:
    return sum(ns for _, ns in ran.values())


def _by_name(ran: Ran) -> dict[str, float]:
    total: dict[str, float] = {}
    for (name, _), (count, _) in ran.items():
        total[name] = total.get(name, 0.0) + count
    return total


def _tensors_given(ran: Ran) -> dict[Argument, float]:
    """Times that a rank's operators are given a tensor of some shape: a batch may have that of a weight, or of another
    layer's batch on a peer, by chance, but not in the same place as often."""
    total: dict[Argument, float] = defaultdict(float)
    for (name, shape), (count, _) in ran.items():
        for place, tensor in enumerate(tensors(shape)):
            total[name, place, tensor] += count
    return total


def _elements_by_step(facts: RankFacts, shares: Mapping[Argument, float], steps: int) -> Array:
    """Elements of the arguments of each step. `shares`: share of such arguments that not all ranks have."""
    ops, inside, text = facts.host_operators, _step_of(facts), facts.strings
    rows = np.flatnonzero((inside >= 0) & (inside < steps) & (ops["shape"] != NO_STRING))
    pairs, which = distinct(ops["name"][rows], ops["shape"][rows])
    elements = [
        sum(
            np.prod(tensor, dtype=float) * shares.get((text[name], place, tensor), 1.0)
            for place, tensor in enumerate(tensors(text[shape]))
        )
        for name, shape in pairs.T.tolist()
    ]
    each = np.array(elements, float)[which]
    return np.bincount(inside[rows], weights=each, minlength=steps)[:steps]


@lru_cache(maxsize=4096)
def tensors(shapes: str) -> tuple[Tensor, ...]:
    """The tensors in a text of shapes ("[[8, 120], []]"); none in any other text."""
    try:
        dims = json.loads(shapes)
    except ValueError:
        return ()
    lists = [one for one in dims if isinstance(one, list) and one] if isinstance(dims, list) else []
    return tuple(tuple(d for d in one if isinstance(d, int)) for one in lists)


def _step_of(facts: RankFacts) -> Array:
    """The step in which each operator began; -1 outside."""
    start = facts.host_operators["start_ns"]
    at = np.searchsorted(facts.steps["start_ns"], start, side="right") - 1
    until = np.append(facts.steps["end_ns"], 0)[at]
    return np.where((at >= 0) & (start < until), at, -1)

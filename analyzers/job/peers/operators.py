"""Operators of CPU ranks, rank against rank: how many each runs, and the sizes of their tensors."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.work import host_work
from ddprof.analyzers.job.peers.kernels import COUNT_TOLERANCE
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.tables import Array, distinct

# Of a rank's time: one that spends more on what its peers do not run runs another program (slowdown.py).
MOST_SHARE, MUCH_SHARE = 0.9, 0.5
MORE_WORK_SHARE = 0.1  # of a rank's time, in work that its peers do not have: it runs another program
LEAST_EQUAL = 0.1  # of a rank's time in operators that its peers run too, by which its pace is judged
Tensor = tuple[int, ...]  # its shape
Argument = tuple[str, int, Tensor]  # operator, place, shape
Ran = dict[tuple[str, str], tuple[float, float]]  # (name, what tells calls of it apart) -> (how often, ns)


@remembered
def operators_run(facts: RankFacts, steps: int) -> Ran:
    """Operators of a rank's first `steps` steps. Shapes are "" where not recorded."""
    ops, inside = facts.host_operators, _step_of(facts)
    rows = np.flatnonzero((inside >= 0) & (inside < steps))
    return tallied(facts, ops["name"][rows], ops["shape"][rows], ops["dur_ns"][rows])


def tallied(facts: RankFacts, name: Array, kind: Array, dur_ns: Array) -> Ran:
    """Calls of a rank by their names and kinds, rows of its strings; "" for NO_STRING."""
    none, texts = len(facts.strings), (*facts.strings, "")
    pairs, which = distinct(*(np.where(of == NO_STRING, none, of) for of in (name, kind)))
    counts, spent = np.bincount(which), np.bincount(which, weights=dur_ns)
    columns = zip(*pairs.tolist(), counts.tolist(), spent.tolist(), strict=True)
    return {(texts[named], texts[of]): (float(count), ns) for named, of, count, ns in columns}


class ExtraOperators(Struct, frozen=True):
    """Time (ns) of operators that a rank runs in a step more often than the typical rank does there, and of all its
    operators, both of shape (ranks, steps); the `names` of the former, those that take longest first; `parts`: the
    share of their calls that is extra, shape (ranks, names, steps)."""

    extra_ns: Array
    every_ns: Array
    names: tuple[str, ...]
    parts: Array

    @property
    def share(self) -> Array:
        """Share of the extra operators, shape (ranks, steps)."""
        return np.asarray(self.extra_ns / np.maximum(self.every_ns, 1.0))

    @property
    def late_us(self) -> float:
        """Time by which extra operators make the latest rank of a step later than the mean rank, mean over steps."""
        return float((self.extra_ns.max(axis=0) - self.extra_ns.mean(axis=0)).mean() / 1e3)


def extra_operators(ranks: Sequence[RankFacts], steps: int, groups: Sequence[Sequence[int]]) -> ExtraOperators:
    """Extra operators of CPU ranks in their first `steps` steps, compared within each of the `groups` of positions."""
    names, counts, spent_ns = _counted(ranks, steps)
    parts = np.zeros(counts.shape)
    for group in map(list, groups):
        usual = averages.typical_row(counts[group])
        more = np.where(counts[group] > usual * (1 + COUNT_TOLERANCE), counts[group] - usual, 0.0)
        parts[group] = more / np.maximum(counts[group], 1.0)
    extra_ns = spent_ns * parts
    longest = np.argsort(-extra_ns.sum(axis=(0, 2)), kind="stable")
    extra = [row for row in longest.tolist() if extra_ns[:, row].any()]
    named = tuple(names[row] for row in extra)
    return ExtraOperators(extra_ns.sum(axis=1), spent_ns.sum(axis=1), named, parts[:, extra])


def pace_of_equal(ranks: Sequence[RankFacts], steps: int, busy_ns: Array) -> Array:
    """Time of the operators of CPU ranks over their typical peer's for operators of equal name and shapes, in each of
    the first `steps` steps; shape (ranks, steps), that of `busy_ns`, the time of all their operators. NaN where these
    are hardly any of a rank's time: without shapes one name may be of tensors of any size.
    """
    _, counts, spent_ns = _counted(ranks, steps, shaped=True)
    each_ns = np.where(counts > 0, spent_ns / np.maximum(counts, 1.0), np.inf)
    has = counts > 0
    is_common = has.sum(axis=0) > len(ranks) / 2
    usual_ns = np.where(is_common, averages.typical_of_finite(each_ns), 0.0)
    shared = has & is_common
    took_ns, due_ns = (spent_ns * shared).sum(axis=1), (counts * usual_ns * shared).sum(axis=1)
    enough = (took_ns >= LEAST_EQUAL * busy_ns) & (due_ns > 0)
    pace = np.where(enough, took_ns / np.maximum(due_ns, 1.0), np.nan)
    return np.asarray(pace / averages.typical_of_finite(pace))


def _counted(ranks: Sequence[RankFacts], steps: int, shaped: bool = False) -> tuple[list[str], Array, Array]:
    """Operators by name, or by name and recorded shapes (`shaped`), their number and the time (ns) that they compute on
    each rank, step by step, both of shape (ranks, kinds, steps).
    """
    numbers: dict[str, int] = {}
    parts = []
    for facts in ranks:
        ops, step = facts.host_operators, _step_of(facts)
        rows = np.flatnonzero((step >= 0) & (step < steps) & ((ops["shape"] != NO_STRING) | (not shaped)))
        pairs, which = distinct(ops["name"][rows], ops["shape"][rows] * shaped)
        words = [facts.strings[name] + (facts.strings[shape] if shaped else "") for name, shape in pairs.T.tolist()]
        kind = np.array([numbers.setdefault(each, len(numbers)) for each in words], np.int64)[which]
        start = ops["start_ns"][rows]  # in some, ranks wait for one another
        computing_ns = intervals.overlap(host_work(facts), start, start + ops["dur_ns"][rows])
        parts.append((kind * steps + step[rows], computing_ns))
    counts, spent_ns = np.zeros((2, len(ranks), len(numbers) * steps))
    for position, (at, computing_ns) in enumerate(parts):
        np.add.at(counts[position], at, 1.0)
        np.add.at(spent_ns[position], at, computing_ns)
    shape = len(ranks), len(numbers), steps
    return list(numbers), counts.reshape(shape), spent_ns.reshape(shape)


@remembered
def usual_work_us(facts: RankFacts) -> float:
    """Time of a CPU rank's operators per step, us, each call as long as the median call of its operator, which waits
    for a CPU do not move."""
    ops, start = facts.host_operators, facts.host_operators["start_ns"]
    inside = _step_of(facts) >= 0
    computing_ns = intervals.overlap(host_work(facts), start, start + ops["dur_ns"])
    each_ns = [computing_ns[inside & (ops["name"] == name)] for name in np.unique(ops["name"][inside]).tolist()]
    return sum(len(ns) * float(np.median(ns)) for ns in each_ns) / 1e3 / len(facts.steps)


def extra_spans(facts: RankFacts, names: Sequence[str], parts: Array) -> list[tuple[Intervals, float]]:
    """Times of operators of which a part of the calls is extra (`parts`: shape (names, steps)), by that part."""
    ops, step = facts.host_operators, _step_of(facts)
    place = {name: at for at, name in enumerate(names)}
    distinct_names, which = np.unique(ops["name"], return_inverse=True)
    at = np.array([place.get(facts.strings[name], -1) for name in distinct_names.tolist()], np.int64)[which]
    known = (at >= 0) & (step >= 0) & (step < parts.shape[1])
    part = np.where(known, parts[at * known, step * known], 0.0)
    end = ops["start_ns"] + ops["dur_ns"]
    return [(intervals.union(ops["start_ns"][part == one], end[part == one]), one) for one in np.unique(part[part > 0])]


def tensor_elements(ranks: Sequence[RankFacts]) -> Array | None:
    """Elements of operators' tensors per step, without tensors that all ranks have (weights); float, shape (ranks,
    steps).

    None where ranks have little in common, or all have equal shapes. Enlarging a batch may add an operator, and longer
    sequences repeat those of a recurrent layer: only what all ranks run equally often is compared.
    """
    steps = min(len(facts.steps) for facts in ranks)
    ran = [operators_run(facts, steps) for facts in ranks]
    if len(ranks) < 2 or not all(ran):
        return None
    counts = [times_by_name(one) for one in ran]
    common = set[str].intersection(*map(set, counts))
    shared = [{key: each for key, each in one.items() if key[0] in common} for one in ran]
    # Enlarging a batch takes time: it has to be most of what the least busy rank runs, and much of what others do.
    every_ns = np.array([max(1.0, _time_ns(every)) for every in ran])
    in_common = np.array([_time_ns(some) for some in shared]) / every_ns
    if in_common.min() < MUCH_SHARE or in_common[np.argmin(every_ns)] < MOST_SHARE:
        return None
    alike = {name for name in common if len({one[name] for one in counts}) == 1}
    ran = [{key: each for key, each in one.items() if key[0] in alike} for one in shared]
    given = [_tensors_given(one) for one in ran]
    shares = [{key: 1 - min(one.get(key, 0.0) for one in given) / n for key, n in counted.items()} for counted in given]
    elements = np.array([_elements_by_step(facts, share, steps) for facts, share in zip(ranks, shares, strict=True)])
    return elements if (elements > 0).all() else None


def _time_ns(ran: Ran) -> float:
    return sum(ns for _, ns in ran.values())


def times_by_name(ran: Ran) -> dict[str, float]:
    """Calls of each name."""
    total: dict[str, float] = defaultdict(float)
    for (name, _), (count, _) in ran.items():
        total[name] += count
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
            np.prod(tensor, dtype=float) * shares.get((text[name], place, tensor), 0.0)
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
    return intervals.row_at(facts.steps.bounds, facts.host_operators["start_ns"])

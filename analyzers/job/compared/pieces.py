"""What CPU ranks do in each step, piece by piece: operators, and Python between two of them, alike on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.work import free_host
from ddprof.tables import Array

Operator = tuple[str, ...]  # name and shapes, "" where they were not recorded


@dataclass(frozen=True)
class Pieces:
    """Some pieces of a rank: kind and which one of its kind in the step, shape (n, 2); step and duration of each."""

    key: Array
    step: Array
    dur_ns: Array


@dataclass(frozen=True)
class StepPieces:
    """The pieces of all ranks. The kind of an operator is its row of `names`; that of Python between two operators
    the two rows, the first one in the upper half."""

    operators: tuple[Pieces, ...]
    between: tuple[Pieces, ...]
    names: tuple[Operator, ...]

    def around(self, kind: int) -> tuple[str, str]:
        """The operators before and after Python of a kind."""
        return self.names[kind >> 32][0], self.names[kind & 0xFFFFFFFF][0]


def step_pieces(ranks: Sequence[RankFacts]) -> StepPieces:
    """The pieces that lie in steps."""
    codes: dict[Operator, int] = {}
    found = [_pieces(facts, codes) for facts in ranks]
    operators, between = tuple(own for own, _ in found), tuple(python for _, python in found)
    return StepPieces(operators, between, tuple(codes))


def _pieces(facts: RankFacts, codes: dict[Operator, int]) -> tuple[Pieces, Pieces]:
    """Operators of a rank, by name and shapes, and its Python between operators, by the operators before and after."""
    ops = facts.host_operators
    start, end = ops["start_ns"], ops["start_ns"] + ops["dur_ns"]
    pairs = np.stack((ops["name"], ops["shape"]), axis=1)
    named, which = np.unique(pairs, axis=0, return_inverse=True)
    texts = [tuple("" if i == NO_STRING else facts.strings[i] for i in pair) for pair in named.tolist()]
    kind = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)[which.reshape(-1)]
    begun, until = free_host(facts)
    before = np.searchsorted(np.sort(end), begun, side="right") - 1
    after = np.searchsorted(start, until)
    known = (before >= 0) & (after < len(start))
    before, after = np.argsort(end, kind="stable")[before[known]], after[known]
    around = (kind[before] << 32) + kind[after]
    return (
        _numbered(facts, kind, start, ops["dur_ns"]),
        _numbered(facts, around, begun[known], (until - begun)[known]),
    )


def _numbered(facts: RankFacts, kind: Array, start_ns: Array, dur_ns: Array) -> Pieces:
    """What lies in steps, by kind."""
    steps = facts.steps
    step = np.searchsorted(steps["start_ns"], start_ns, side="right") - 1
    inside = np.flatnonzero((step >= 0) & (start_ns < np.append(steps["end_ns"], 0)[step]))
    order = inside[np.lexsort((start_ns[inside], step[inside], kind[inside]))]
    group = np.stack((kind[order], step[order]), axis=1)
    _, first, which = np.unique(group, axis=0, return_index=True, return_inverse=True)
    number = np.arange(len(order)) - first[which.reshape(-1)]
    return Pieces(np.stack((kind[order], number), axis=1), step[order], dur_ns[order])


@dataclass(frozen=True)
class Pool:
    """Pieces of all ranks, one after the other: rank, step, place (a number of kind and number in the step), duration,
    and the typical duration at that place."""

    rank: Array
    step: Array
    place: Array
    dur_ns: Array
    usual_ns: Array
    keys: Array  # of each place, shape (places, 2)


def pooled(ranks: Sequence[Pieces]) -> Pool:
    """The pieces of all ranks, to be compared."""
    dur_ns = np.concatenate([own.dur_ns for own in ranks])
    keys, place = np.unique(np.concatenate([own.key for own in ranks]), axis=0, return_inverse=True)
    place = place.reshape(-1)
    return Pool(
        rank=np.repeat(np.arange(len(ranks)), [len(own.dur_ns) for own in ranks]),
        step=np.concatenate([own.step for own in ranks]),
        place=place,
        dur_ns=dur_ns,
        usual_ns=_lower_medians(place, dur_ns)[place],
        keys=keys,
    )


def _lower_medians(group: Array, values: Array) -> Array:
    """Of each group, by its number."""
    order = np.lexsort((values, group))
    begin = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 1))
    count = np.diff(np.append(begin, len(group)))
    return np.asarray(values[order][begin + (count - 1) // 2])

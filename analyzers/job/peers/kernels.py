"""Equal kernels of ranks that run one program, paired by their places in it.

Kernels of one name do other work at other places: the matrix products of a block differ in size, and where shapes were
not recorded nothing else tells them apart. So the third launch of a kernel in a step is compared with the third of the
peers. A rank that runs the program of its peers several times in a step launches each kernel so many times as often,
and is compared by name. Where it launches one a few times more or less often, other work is in its mean than in theirs,
or records are missing, and that kernel is not compared.

Kernels that ran alone are compared with such, kernels beside communication with such, and those between not at all. A
late rank runs alone what its peers run beside the communication in which they wait for it: compared by name, its
backward pass would be set against parts of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.work import company, computed_in_steps, issued_ns
from ddprof.tables import Array, distinct, ordinals

COUNT_TOLERANCE = 0.2  # relative; ranks whose counts of a kernel differ by more do different work with it


@dataclass(frozen=True)
class Kernels:
    """A rank's compute kernels by name and shapes, launches in the order of the step; arrays of shape (launches,).

    A kernel belongs to the step that launched it.
    """

    names: tuple[tuple[str, str], ...]  # and shapes, "" where they are not known
    name: Array  # row of `names`
    step: Array
    issued_ns: Array
    dur_ns: Array
    is_beside: Array  # ran beside communication, else alone
    is_either: Array  # ran one way or the other, not partly

    @cached_property
    def place(self) -> Array:
        """Ordinal of each kernel among those of its name in its step, in order of launch, from 0."""
        part = self.name * (int(self.step.max(initial=0)) + 1) + self.step
        order = np.argsort(self.issued_ns, kind="stable")
        place = np.empty(len(part), np.int64)
        place[order] = ordinals(part[order])
        return place


class Compared(Struct, frozen=True):
    """Times of a rank's kernels and of its typical peer's at the same places; ns per step.

    Rows are names, with separate rows beside communication; both arrays have shape (rows, steps), 0 where not compared.
    """

    took_ns: Array
    expected_ns: Array


def kernels_by_place(facts: RankFacts, steps: int) -> Kernels:
    """The compute kernels that the first `steps` steps of a rank launched."""
    ops, (rows, step) = facts.device_ops, computed_in_steps(facts, steps)
    shape, none = ops["shape"][rows], len(facts.strings)
    pairs, name = distinct(ops["name"][rows], np.where(shape == NO_STRING, none, shape))
    texts, (is_alone, is_beside) = (*facts.strings, ""), company(facts)
    return Kernels(
        names=tuple((texts[named], texts[shaped]) for named, shaped in pairs.T.tolist()),
        name=name,
        step=step,
        issued_ns=issued_ns(ops)[rows],
        dur_ns=(ops["end_ns"] - ops["start_ns"])[rows].astype(float),
        is_beside=is_beside[rows],
        is_either=(is_alone | is_beside)[rows],
    )


def compared(ranks: Sequence[Kernels], steps: int) -> list[Compared]:
    """Each rank's kernels against its typical peer's (lower median over ranks of the mean over steps), where most
    ranks, at least two, ran them alike.

    A rank whose launches of a kernel differ in number from most ranks' has other places, and is not compared by it.
    """
    numbers = {name: at for at, name in enumerate(dict.fromkeys(name for rank in ranks for name in rank.names))}
    names = [np.array([numbers[name] for name in rank.names], np.int64)[rank.name] for rank in ranks]
    launches = np.zeros((len(ranks), len(numbers), steps), np.int64)
    for count, name, rank in zip(launches, names, ranks, strict=True):
        np.add.at(count, (name, rank.step), 1)
    runs = launches.any(axis=2, keepdims=True)  # of those that launch it at all
    usual = averages.typical_of_finite(np.where(runs, launches, np.inf))
    is_common = (launches == usual).sum(axis=0) > _half(ranks)
    most = launches.max(axis=(0, 2), initial=0)
    first = np.cumsum(most) - most  # of a name's places
    places = int(most.sum())
    cells = []
    for count, name, rank in zip(launches, names, ranks, strict=True):
        is_placed = rank.is_either & (is_common & (count == usual))[name, rank.step]
        cells.append(np.where(is_placed, 2 * (first[name] + rank.place) + rank.is_beside, -1))
    expected_ns = _typical(cells, ranks, 2 * places)
    times = []
    for cell, name, rank in zip(cells, names, ranks, strict=True):
        expected = expected_ns[cell]
        keep = (cell >= 0) & np.isfinite(expected)
        key = ((2 * name + rank.is_beside) * steps + rank.step)[keep]
        took, due = (
            np.bincount(key, weights=weights[keep], minlength=2 * len(numbers) * steps).reshape(-1, steps)
            for weights in (rank.dur_ns, expected)
        )
        times.append(Compared(took, due))
    return _in_each_step(times)


def _in_each_step(ranks: Sequence[Compared]) -> list[Compared]:
    """Comparisons with the expected time of each kernel scaled to the typical rank's time in the same step.

    Some steps' batches are longer on all ranks, which only shapes would show. And where two ranks each lack another
    launch record, all places after it hold other work, of which the shorter passes for typical: both would seem slow.
    """
    factor = np.full((len(ranks), *ranks[0].took_ns.shape), np.nan, np.float32)
    for row, each in zip(factor, ranks, strict=True):
        np.divide(each.took_ns, each.expected_ns, out=row, where=each.expected_ns > 0, casting="same_kind")
    typical = np.where(np.isfinite(factor).sum(axis=0) > 1, averages.typical_of_finite(factor), 1.0).astype(float)
    return [Compared(each.took_ns, each.expected_ns * typical) for each in ranks]


def _typical(cells: Sequence[Array], ranks: Sequence[Kernels], count: int) -> Array:
    """Lower median over ranks of a kernel's mean time per cell, ns; NaN where most ranks lack it."""
    mean = np.full((len(ranks), count), np.nan, np.float32)
    for position, (cell, rank) in enumerate(zip(cells, ranks, strict=True)):
        is_placed = cell >= 0
        times = np.bincount(cell[is_placed], minlength=count)
        total = np.bincount(cell[is_placed], weights=rank.dur_ns[is_placed], minlength=count)
        mean[position, times > 0] = (total / np.maximum(times, 1))[times > 0]
    is_usual = np.isfinite(mean).sum(axis=0) > _half(ranks)
    return np.where(is_usual, averages.typical_of_finite(mean).astype(float), np.nan)


def _half(ranks: Sequence[Kernels]) -> int:
    """Least number of ranks that is a majority, at least two."""
    return max(1, len(ranks) // 2)

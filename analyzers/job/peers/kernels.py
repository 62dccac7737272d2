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
from ddprof.tables import Array, distinct

COUNT_TOLERANCE = 0.2  # relative; ranks whose counts of a kernel differ by more do different work with it


@dataclass(frozen=True)
class Kernels:
    """A rank's compute kernels by name and shapes, launches in the order of the step; arrays of shape (launches,).

    A kernel belongs to the step that launched it.
    """

    names: tuple[str, ...]
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
        order = np.lexsort((self.issued_ns, part))
        ordered = part[order]
        place = np.empty(len(part), np.int64)
        place[order] = np.arange(len(part)) - np.searchsorted(ordered, ordered)
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
        names=tuple(texts[named] + texts[shaped] for named, shaped in pairs.T.tolist()),
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

    A rank whose launches of a kernel differ in number from most ranks' has other places: it is compared by name if its
    whole step repeats that many times. Where most ranks differ among themselves, none is compared.
    """
    numbers = {name: at for at, name in enumerate(dict.fromkeys(name for rank in ranks for name in rank.names))}
    names = [np.array([numbers[name] for name in rank.names], np.int64)[rank.name] for rank in ranks]
    launches = np.zeros((len(ranks), len(numbers), steps), np.int64)
    for count, name, rank in zip(launches, names, ranks, strict=True):
        np.add.at(count, (name, rank.step), 1)
    usual = _median_of_those_with_any(launches)
    is_common = (launches == usual).sum(axis=0) > _half(ranks)
    most = launches.max(axis=(0, 2), initial=0)
    first = np.cumsum(most) - most  # of a name's places
    places = int(most.sum())
    by_place, by_name = [], []
    for count, name, rank in zip(launches, names, ranks, strict=True):
        is_usual = (is_common & (count == usual))[name, rank.step]
        is_repeated = _repeats(count, usual)[name, rank.step]
        by_name.append(np.where(rank.is_either & (is_usual | is_repeated), 2 * name + rank.is_beside, -1))
        by_place.append(np.where(rank.is_either & is_usual, 2 * (first[name] + rank.place) + rank.is_beside, -1))
    at_place = _typical(by_place, ranks, 2 * places)
    of_name = _typical(by_name, ranks, 2 * len(numbers))
    times = []
    for place, row, rank in zip(by_place, by_name, ranks, strict=True):
        is_odd = (place < 0) & (row >= 0)
        expected = np.where(is_odd, of_name[row], at_place[place])
        keep = (row >= 0) & np.isfinite(expected)
        key = (row * steps + rank.step)[keep]
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
    if not ranks:
        return []
    factor = np.full((len(ranks), *ranks[0].took_ns.shape), np.nan, np.float32)
    for row, each in zip(factor, ranks, strict=True):
        np.divide(each.took_ns, each.expected_ns, out=row, where=each.expected_ns > 0, casting="same_kind")
    count = np.isfinite(factor).sum(axis=0)
    factor.sort(axis=0)  # what is not known comes last
    middle = np.take_along_axis(factor, (np.maximum(count - 1, 0) // 2)[None], axis=0)[0]
    typical = np.where(count > 1, middle, 1.0).astype(float)
    return [Compared(each.took_ns, each.expected_ns * typical) for each in ranks]


def _median_of_those_with_any(launches: Array) -> Array:
    """Lower median over the ranks that launch a kernel at all, of its launches per step; shape (names, steps)."""
    runs = launches.any(axis=2, keepdims=True)
    ordered = np.sort(np.where(runs, launches, np.iinfo(np.int64).max), axis=0)
    middle = np.maximum(runs.sum(axis=0, keepdims=True) - 1, 0) // 2
    return np.asarray(np.take_along_axis(ordered, np.broadcast_to(middle, (1, *ordered.shape[1:])), axis=0)[0])


def _repeats(count: Array, usual: Array) -> Array:
    """Mask of names launched a whole number of times as often as usual, or as rarely, where that number is the one of
    most launches in the step. `count`, `usual`: launches, (names, steps).
    """
    least, most = np.minimum(count, usual), np.maximum(count, usual)
    times = np.where(least > 0, most / np.maximum(least, 1), 0.0) * np.where(count < usual, -1, 1)
    repeats = np.zeros(count.shape, bool)
    for step in np.flatnonzero((least > 0).any(axis=0)):
        here = averages.weighted_median(times[:, step], count[:, step])
        repeats[:, step] = (times[:, step] == here) & (abs(here) >= 2) & (here % 1 == 0)
    return repeats


def _typical(cells: Sequence[Array], ranks: Sequence[Kernels], count: int) -> Array:
    """Lower median over ranks of a kernel's mean time per cell, ns; NaN where most ranks lack it."""
    mean = np.full((count, len(ranks)), np.nan, np.float32)
    for position, (cell, rank) in enumerate(zip(cells, ranks, strict=True)):
        is_placed = cell >= 0
        times = np.bincount(cell[is_placed], minlength=count)
        total = np.bincount(cell[is_placed], weights=rank.dur_ns[is_placed], minlength=count)
        mean[times > 0, position] = (total / np.maximum(times, 1))[times > 0]
    mean.sort(axis=1)  # what is not known comes last
    has = np.isfinite(mean).sum(axis=1)
    middle = mean[np.arange(count), np.maximum(has - 1, 0) // 2].astype(float)
    return np.asarray(np.where(has > _half(ranks), middle, np.nan))


def _half(ranks: Sequence[Kernels]) -> int:
    """Least number of ranks that is a majority, at least two."""
    return max(1, len(ranks) // 2)

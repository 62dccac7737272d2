"""Counters of the lines of a loop: the one that rises, the epochs that they end, or their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ddprof.slices.training_logs.reading.kinds import Numbers, TimeKind, Times, preference
from ddprof.slices.training_logs.reading.lines import Stamp

FEWEST = 3  # lines with rising numbers, before text is taken for the log of a training


_ALIKE = 0.1  # relative: times since an epoch began, for each of its iterations; a time, against a wait beside it
_HALF = 0.5  # of the way from a time of one iteration, 0, to a mean, 1
MOST_FALLS = 0.1  # of the lines, between numbers that rise; of single times half are shorter than the one before


def rises(numbers: Sequence[float]) -> bool:
    """True where nearly no number is below the one before."""
    return sum(after < before for before, after in pairwise(numbers)) <= MOST_FALLS * len(numbers)


class LoopLine(NamedTuple):
    """A line about an iteration: counters, its epoch, that of a heading above it, the rank that writes (None: unknown),
    its clock, times, waits.
    """

    counters: Numbers
    epoch: float | None
    under: float | None
    rank: int | None
    clock: Stamp | None
    times: Times
    waits: dict[str, float]


def with_time(line: LoopLine, kind: TimeKind, name: str) -> LoopLine | None:
    """The line with such a time, None without one: bars print s/it, and it/s where that is more than one."""
    if len(line.times) == 1 and (kind, name) in line.times:
        return line
    other = {TimeKind.EACH: TimeKind.RATE, TimeKind.RATE: TimeKind.EACH}.get(kind, kind)
    time = line.times.get((kind, name), line.times.get((other, name)))
    return None if time is None else line._replace(times={(kind, name): time})


def ended_at(lines: Sequence[LoopLine], counter: str) -> int:
    """The number that most lines count to, each in another epoch, as they are written at its end; 0 without one."""
    counter = counter or min({key for line in lines for key in line.counters}, key=preference, default="")
    numbers = [line.counters[counter][0] for line in lines if counter in line.counters]
    number, often = Counter(numbers).most_common(1)[0] if numbers else (0, 0)
    epochs = [epoch_at(line) for line in lines if counter in line.counters and line.counters[counter][0] == number]
    apart = sum(a != b for a, b in pairwise(epochs))
    return number if 2 * often > len(lines) and None not in epochs and 2 * apart >= often >= FEWEST else 0


def epoch_at(line: LoopLine) -> float | None:
    """The epoch of a line: its own, or that of the heading above it."""
    return line.under if line.epoch is None else line.epoch


def since_epoch_began(numbers: Sequence[int], ms: Sequence[float]) -> list[float] | None:
    """Times of an iteration since the line before, where each of `ms` is the mean since its epoch began; None where
    they are not. Such a mean keeps of a first iteration beyond the usual as much as it has iterations; a time of one
    keeps nothing: what is nearer to the one decides.
    """
    starts = [at for at, (a, b) in enumerate(pairwise(numbers), 1) if b <= a]
    if len(starts) < FEWEST:
        return None
    first = int(min(numbers) == 0)
    steps = [number + first for number in numbers]
    spent = [time * of for time, of in zip(ms, steps, strict=True)]
    anew = {0, *starts}
    each = [
        time if at in anew else (spent[at] - spent[at - 1]) / (steps[at] - steps[at - 1]) for at, time in enumerate(ms)
    ]
    usual, kept, at_first = median(each), [], 0
    for at in range(len(ms)):
        at_first = at if at in anew else at_first
        if at != at_first and ms[at_first] >= 2 * usual > 0:
            kept.append((spent[at] - usual * steps[at]) / (spent[at_first] - usual * steps[at_first]))
    return each if kept and abs(median(kept) - 1) < _HALF and min(each) >= 0 else None


def are_since_epoch_began(numbers: Sequence[int], ms: Sequence[float]) -> bool:
    """True for times that are as many times longer as there are iterations in the epoch, however they are named."""
    first = int(min(numbers) == 0)
    run = [(number + first, time) for number, time in zip(numbers, ms, strict=True)][1:]
    if len(run) <= FEWEST or max(run)[0] < 2 * min(run)[0]:
        return False
    each = [time / number for number, time in run]
    return all(abs(time / median(each) - 1) <= _ALIKE for time in each) and median(each) > 0


def with_waits(lines: list[LoopLine], counter: str, key: tuple[TimeKind, str]) -> list[LoopLine]:
    """The lines with times that hold the wait for a batch, where one that is shorter than the wait beside it shows that
    it is left out. Means may be shorter, and are not told apart but where each iteration has its line.
    """
    names = {name for line in lines for name in line.waits}
    numbers = [line.counters[counter][0] for line in lines] if counter else []
    is_of_one = (
        bool(numbers) and key[0] in (TimeKind.ONE, TimeKind.ANY) and {b - a for a, b in pairwise(numbers)} == {1}
    )
    if not is_of_one or len(names) != 1 or any(line.clock for line in lines):
        return lines
    waits, times = [sum(line.waits.values()) for line in lines], [line.times[key] for line in lines]
    beyond = [wait > (1 + _ALIKE) * ms for wait, (ms, _) in zip(waits, times, strict=True)]
    if not any(beyond[1:]) or median(waits) > median(ms for ms, _ in times):
        return lines
    return [
        line._replace(times={key: (ms + wait, grain)})
        for line, wait, (ms, grain) in zip(lines, waits, times, strict=True)
    ]


def by_epochs(lines: Sequence[LoopLine], ended: int) -> Iterator[LoopLine]:
    """Lines with a number of their own: of the epoch that each ends, after `ended` iterations, or of their place."""
    epochs = [epoch_at(line) for line in lines]
    rise = None not in epochs and 2 * sum(a != b for a, b in pairwise(epochs)) >= len(lines)  # once in each
    for at, (line, epoch) in enumerate(zip(lines, epochs, strict=True), 1):
        if not ended and not rise:
            yield line._replace(counters={"": (at, None)}, clock=None)  # how many iterations lie between is not known
        elif not ended and epoch is not None:  # of its iterations one or all may be timed
            yield line._replace(counters={"": (int(epoch), None)}, clock=None)
        elif epoch is not None and any(number == ended for number, _ in line.counters.values()):
            yield line._replace(counters={"": (int(epoch) * ended, None)})


def of_training(lines: Sequence[LoopLine]) -> list[LoopLine]:
    """Lines that name an epoch, or name none, as most do: others are of settings or an evaluation."""
    names_epoch = 2 * sum(line.epoch is not None for line in lines) >= len(lines)
    return [line for line in lines if (line.epoch is not None) == names_epoch]


def counted_by(lines: Sequence[LoopLine]) -> tuple[Sequence[LoopLine], str]:
    """Lines with a counter, and which: by its name, of those that rise; all lines and "" where none does."""
    rising: Counter[str] = Counter()
    last: dict[str, int] = {}
    for line in lines:
        for key, (number, _) in line.counters.items():
            if number > last.get(key, number):
                rising[key] += 1
            last[key] = number
    counting = [line for line in lines if not rising.keys().isdisjoint(line.counters)]
    printed = Counter(key for line in counting for key in line.counters)
    common = [key for key in rising if 2 * printed[key] >= len(counting)]
    counter = min(common, key=lambda key: (preference(key), -rising[key]), default="")
    return [line for line in lines if not counter or counter in line.counters], counter

"""Waits for the next batch, as the lines of a loop print them."""

from __future__ import annotations

import math

import numpy as np

from ddprof.slices.training_logs.model import DATA, RankReading, TimerReading
from ddprof.slices.training_logs.reading.counting import LoopTable
from ddprof.slices.training_logs.reading.fields import MEAN


def waits_of(
    lines: LoopTable, counter: str, most_ms: float, parts: float = 1
) -> tuple[list[TimerReading], list[RankReading]]:
    """Time until the batch is there: one reading an iteration, of all ranks that write, and each rank's own. The first
    line of each epoch is left out, as it is of the iterations: there the workers start.
    """
    # No wait is longer than its iteration: such a time is of a worker.
    often = [
        name
        for name, (rows, ms) in lines.waits.items()
        if 2 * len(rows) >= lines.lines and np.median(ms) <= most_ms and not name.endswith(MEAN)
    ]
    data = min(often, key=lambda name: ("last" not in name, "wait" not in name), default="")
    if not data:
        return [], []
    waits_ms = np.full(lines.lines, np.nan)
    waits_ms[lines.waits[data][0]] = lines.waits[data][1] / parts
    numbers = lines.counters[counter][1]
    if np.isnan(lines.rank).all() and (numbers[1:] != numbers[:-1]).all():  # each is one iteration's
        is_read = ~np.isnan(waits_ms) & (np.diff(numbers, prepend=0) >= 0)
        return [TimerReading(DATA, ms) for ms in waits_ms[is_read].tolist()], []
    own = [None if rank != rank else int(rank) for rank in lines.rank.tolist()]
    ranks = set(own)
    times: list[dict[int | None, float]] = []
    starts: set[int] = set()
    before = -1.0
    for number, rank, ms in zip(numbers.tolist(), own, waits_ms.tolist(), strict=True):
        if number != before or rank in times[-1]:
            if number < before:
                starts.add(len(times))
            times.append({})
            before = number
        if not math.isnan(ms) and len(times) - 1 not in starts:
            times[-1][rank] = ms
    is_of_ranks = len(ranks) > 1 and None not in ranks
    readings = [
        TimerReading(DATA, max(of.values()), min(of.values()) if is_of_ranks else None, is_of_ranks)
        for of in times
        if of
    ]
    return readings, [
        RankReading(DATA, block, rank, ms)
        for block, of in enumerate(times)
        for rank, ms in of.items()
        if is_of_ranks and rank is not None
    ]

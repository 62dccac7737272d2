"""Step times measured by the workload itself, and the line that reports them to its parent."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO, TypeVar

Item = TypeVar("Item")
MARK = "ddprof_workload"  # first key of the line
WARM_UP_STEPS = 5


@dataclass
class Stopwatch:
    """One lap per step, from before its batch is fetched to before the next one is; nanoseconds.

    On a GPU nothing is synchronised for it: over many steps the host cannot run ahead of its device. `told`: takes a
    line per lap as it ends, its start and end on the clock that all processes of the host share.
    """

    laps_ns: list[int] = field(default_factory=list)
    told: TextIO | None = None

    def laps(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, timed."""
        started = time.monotonic_ns()
        for item in items:
            yield item
            now = time.monotonic_ns()
            self.laps_ns.append(now - started)
            if self.told is not None:
                self.told.write(f"{started} {now}\n")
            started = now

    def line(self, workload: str, fault: str, fix: str, world_size: int) -> str:
        """One line of JSON: median and mean of the timed steps (the first few left out) and every step, in ms."""
        every = [round(lap / 1e6, 3) for lap in self.laps_ns]
        timed = every[WARM_UP_STEPS:] or every
        return json.dumps(
            {
                MARK: workload,
                "fault": fault,
                "fix": fix,
                "world_size": world_size,
                "timed_steps": len(timed),
                "step_ms_median": round(statistics.median(timed), 3) if timed else None,
                "step_ms_mean": round(statistics.fmean(timed), 3) if timed else None,
                "step_ms": every,
            }
        )

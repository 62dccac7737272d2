"""Pauses over the whole run, from capture's own record: most fall outside the few profiled steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts

WARM_STEPS = 10  # lazy initialisation, first allocations, collections of what imports left behind
MIN_STEPS = 30  # after them: the share of a shorter run says nothing about a longer one


@dataclass(frozen=True)
class Pauses:
    """Pauses of one kind on one rank between its first and its last recorded step, outside the trace windows."""

    position: int
    count: int
    total_ns: int
    longest_ns: int
    run_ns: int
    steps: int

    @property
    def share(self) -> float:
        """Of the run's time."""
        return self.total_ns / self.run_ns if self.run_ns > 0 else 0.0


def worst_pauses(ranks: tuple[RankFacts, ...] | list[RankFacts], key: str) -> Pauses | None:
    """Pauses of the kind `key` of the sidecar ("gc", "checkpoints") on the rank that lost most; None without any.

    Ranks wait for one another, so the job loses at least what its worst rank does.
    """
    found = [s for p, f in enumerate(ranks) if (s := _pauses(f, p, key)) is not None]
    return max(found, key=lambda s: s.share, default=None)


def _pauses(facts: RankFacts, position: int, key: str) -> Pauses | None:
    steps = [s for s in facts.sidecar.get("steps") or () if isinstance(s, dict) and s.get("end_ns")]
    pauses = [p for p in facts.sidecar.get(key) or () if isinstance(p, dict) and p.get("dur_ns")]
    if len(steps) < WARM_STEPS + MIN_STEPS or not pauses:
        return None
    steps = steps[WARM_STEPS:]
    first, last = int(steps[0]["start_ns"]), int(steps[-1]["end_ns"])
    if len(pauses) >= 4096:  # the record keeps the latest: what came before them is unknown, not free of pauses
        first = max(first, int(pauses[0]["start_ns"]))
    start, end = _column(pauses, "start_ns"), _column(pauses, "start_ns") + _column(pauses, "dur_ns")
    inside = (start >= first) & (end <= last)
    for window in facts.sidecar.get("windows") or ():
        if isinstance(window, dict) and window.get("end_ns") is not None and window.get("start_ns") is not None:
            over = int(window["end_ns"]) + int(window.get("export_pause_ns") or 0)  # the export is our own doing
            inside &= (end <= int(window["start_ns"])) | (start >= over)
    if not inside.any():
        return None
    spent = intervals.length(intervals.union(start[inside], end[inside]))
    longest = int((end - start)[inside].max())
    run_steps = int(steps[-1].get("index", len(steps))) - int(steps[0].get("index", 0)) + 1
    return Pauses(position, int(inside.sum()), spent, longest, last - first, run_steps)


def _column(rows: list[dict[str, Any]], name: str) -> Any:
    return np.array([int(row[name]) for row in rows], np.int64)

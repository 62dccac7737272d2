"""Pauses over the whole run, from capture's own record: most fall outside the few profiled steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.whole_run.unprofiled_steps import common_steps, pauses_in, unprofiled_steps
from ddprof.sidecar import Pause, Sidecar
from ddprof.tables import Array

WARM_STEPS = 10  # lazy initialisation, first allocations, collections of what imports left behind
MAX_RECORDED = 4096  # pauses of a kind: capture keeps the latest
MIN_STEPS = 30  # after them: the share of a shorter run says nothing about a longer one


@dataclass(frozen=True)
class Pauses:
    """Pauses of one kind on one rank between its first and its last recorded step, outside the trace windows, of which
    `run_ns` and `steps` are free, too.
    """

    position: int
    count: int
    total_ns: int
    longest_ns: int
    run_ns: int
    steps: int
    shares: tuple[float, ...] = ()  # of every rank's run; () where a rank's were not recorded
    in_turn: float = 1.0  # what the ranks that pause longest in each step take, over what this rank does

    @property
    def share(self) -> float:
        """Share of the run's time."""
        return self.total_ns / self.run_ns if self.run_ns > 0 else 0.0

    @property
    def share_of_job(self) -> float:
        """Share of the run's time in which ranks that meet in every step are held up: pauses in turn add up."""
        return min(1.0, self.in_turn * self.share)


def worst_pauses(ranks: Sequence[RankFacts], recorded: Callable[[Sidecar], Sequence[Pause]]) -> Pauses | None:
    """The pauses that each sidecar has `recorded`, on the rank that lost most; None without any."""
    by_ranks = [s for p, f in enumerate(ranks) if (s := _pauses(f.sidecar, p, recorded(f.sidecar))) is not None]
    worst = max(by_ranks, key=lambda s: s.share, default=None)
    if worst is None or len(ranks) < 2:
        return worst
    if not all(facts.sidecar.is_captured for facts in ranks):
        return worst
    by_rank = {one.position: one.share for one in by_ranks}
    shares = tuple(by_rank.get(position, 0.0) for position in range(len(ranks)))
    return replace(worst, shares=shares, in_turn=_in_turn(ranks, recorded))


def _in_turn(ranks: Sequence[RankFacts], recorded: Callable[[Sidecar], Sequence[Pause]]) -> float:
    """Pauses of the rank that pauses longest in each step, over those of the rank that does in all; of unprofiled steps
    that every rank timed.
    """
    of_ranks = [pauses_in(recorded(facts.sidecar)) for facts in ranks]
    by_rank = zip(of_ranks, common_steps(ranks), strict=True)
    each_ns = np.array([[paused(step) or 0 for step in steps] for paused, steps in by_rank], float)
    if each_ns.shape[1] < MIN_STEPS or not each_ns.any():
        return 1.0
    return float(each_ns.max(axis=0).sum() / each_ns.sum(axis=1).max())


def paused_shares(ranks: Sequence[RankFacts]) -> Array:
    """Share of the unprofiled steps of each rank in which it collects garbage, saves or loads, and evaluates; shape
    (ranks,). Timers of the same steps hold these pauses, however few steps they are.
    """
    shares = []
    for facts in ranks:
        sidecar, steps = facts.sidecar, unprofiled_steps(facts)
        paused = pauses_in((*sidecar.gc, *sidecar.checkpoints, *sidecar.evaluations))
        length_ns = sum(step.length_ns or 0 for step in steps)
        shares.append(sum(paused(step) or 0 for step in steps) / length_ns if length_ns else 0.0)
    return np.array(shares, float)


def is_timed(ranks: Sequence[RankFacts]) -> bool:
    """True where capture timed every rank's run for long enough to give the frequency of pauses."""
    every = [[step for step in facts.sidecar.steps if step.span_ns is not None] for facts in ranks]
    return all(len(steps) >= WARM_STEPS + MIN_STEPS for steps in every)


def _pauses(sidecar: Sidecar, position: int, pauses: Sequence[Pause]) -> Pauses | None:
    steps = [(step, span) for step in sidecar.steps if (span := step.span_ns) is not None]
    if len(steps) < WARM_STEPS + MIN_STEPS or not pauses:
        return None
    steps = steps[WARM_STEPS:]
    first, last = steps[0][1][0], steps[-1][1][1]
    if len(pauses) >= MAX_RECORDED:  # what came before them is unknown, not free of pauses
        first = max(first, pauses[0].start_ns)
    start = np.array([pause.start_ns for pause in pauses], np.int64)
    end = start + np.array([pause.dur_ns for pause in pauses], np.int64)
    inside = (start >= first) & (end <= last)
    recorded = [
        (window.start_ns, window.end_ns + (window.export_pause_ns or 0))  # the export is our own doing
        for window in sidecar.windows
        if window.start_ns is not None and window.end_ns is not None
    ]
    for begun_ns, over_ns in recorded:
        inside &= (end <= begun_ns) | (start >= over_ns)
    in_windows = intervals.union(*np.array(recorded, np.int64).reshape(-1, 2).T)
    traced = int(intervals.contains(in_windows, np.array([span[0] for _, span in steps], np.int64)).sum())
    if not inside.any() or 2 * traced > len(steps):  # else the steps outside the windows stand for the run
        return None
    run_ns = last - first - int(intervals.overlap(in_windows, np.array([first]), np.array([last]))[0])
    spent = intervals.length(intervals.union(start[inside], end[inside]))
    longest = int((end - start)[inside].max())
    indices = [at if step.index is None else step.index for at, (step, _) in enumerate(steps)]
    return Pauses(position, int(inside.sum()), spent, longest, run_ns, indices[-1] - indices[0] + 1 - traced)

"""Run the matrix and judge it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workload_pairs.execute import FinishedJob, run_jobs
from benchmarks.workload_pairs.judge import Judgement, above_info, judge, merged, said
from benchmarks.workload_pairs.pairs import Job, Pair, contests, hindrance
from benchmarks.workload_pairs.summary import summarize

Say = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """Every pair judged, those of each trial too, what was left out and why, and the figures."""

    judged: tuple[Judgement, ...]
    trials: tuple[Judgement, ...]
    skipped: tuple[str, ...]
    summary: dict[str, Any]

    @property
    def wrong(self) -> list[Judgement]:
        """Pairs that failed or whose fault was not found with the right ranks."""
        return [j for j in self.judged if j.problem or not j.found]


def run_matrix(matrix: Sequence[Pair], out: Path, repeat: int, reuse: bool, say: Say) -> Result:
    """Run every job of the matrix `repeat` times, in random order, into folders below `out`, and judge the pairs."""
    hindrances = {pair.fixed.name: hindrance(pair) for pair in matrix}
    able = [pair for pair in matrix if not hindrances[pair.fixed.name]]
    skipped = sorted(set(hindrances.values()) - {""})
    for line in skipped:
        say(f"skipped {line}")
    trials: dict[str, list[Judgement]] = {}
    accused, healthy = [], 0
    for number in range(repeat):
        outcomes = _run_all(contests(able), out / str(number), random.Random(number), reuse, say)
        for pair in able:
            judgement = judge(pair, outcomes[pair.faulted.name], outcomes[pair.fixed.name])
            trials.setdefault(pair.fixed.name, []).append(judgement)
        plain = [o for o in outcomes.values() if o.report is not None and o.job == Job(o.job.workload)]
        healthy += len(plain)
        accused += [f"{o.job.name} {said(f)}" for o in plain if o.report is not None for f in above_info(o.report)]
    judged = tuple(merged(found) for found in trials.values())
    every = tuple(judgement for found in trials.values() for judgement in found)
    return Result(judged, every, tuple(skipped), summarize(judged, accused, healthy))


def _run_all(wanted: list[list[Job]], out: Path, draw: random.Random, reuse: bool, say: Say) -> dict[str, FinishedJob]:
    order = list(wanted)
    draw.shuffle(order)
    outcomes: dict[str, FinishedJob] = {}
    for done, contest in enumerate(order, 1):
        for outcome in run_jobs(contest, out, reuse):
            outcomes[outcome.job.name] = outcome
            told = outcome.problem or f"{outcome.step_ms:.1f} ms per step"
            say(f"[{done}/{len(order)}] {outcome.job.name}: {told}")
    return outcomes

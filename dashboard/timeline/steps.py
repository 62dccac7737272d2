"""Steps on the timeline: the start and end of a numbered step on each rank, as the pages count steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddprof.analyzers.job.model import JobFacts
from ddprof.tables import Array


@dataclass(frozen=True)
class RankSteps:
    """The steps of one rank in time order, ns since the run's start. `marked`: the number in the trace."""

    rank: int
    marked: Array
    start_ns: Array
    end_ns: Array


def steps_of(job: JobFacts) -> tuple[RankSteps, ...]:
    """The steps of every rank."""
    by_rank = []
    for position, (rank, facts) in enumerate(zip(job.rank_ids, job.ranks, strict=True)):
        shift = job.shift_ns(position)
        steps = facts.steps
        by_rank.append(RankSteps(rank, steps["index"], steps["start_ns"] - shift, steps["end_ns"] - shift))
    return tuple(by_rank)


def step_count(steps: Sequence[RankSteps]) -> int:
    """Number of steps that every rank has: the pages number them from 0."""
    return min((len(of.marked) for of in steps), default=0)


def step_words(number: int, marked: int) -> str:
    """The step's number on the pages, with its number in the trace where they differ."""
    return f"step {number}" if number == marked else f"step {number} (marked {marked})"


def one_step(steps: Sequence[RankSteps], number: int) -> dict[str, Any]:
    """The step of a number on every rank that has it: [rank, start, end] in us since the run's start."""
    having = [of for of in steps if 0 <= number < len(of.marked)]
    marked = {int(of.marked[number]) for of in having}
    return {
        "number": number,
        "words": step_words(number, marked.pop() if len(marked) == 1 else number),
        "ranks": [[of.rank, float(of.start_ns[number]) / 1e3, float(of.end_ns[number]) / 1e3] for of in having],
    }

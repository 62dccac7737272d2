"""The steady steps: those of the rhythm that repeats. Everything that is averaged or priced is of them.

A recording begins and ends with what happens once: contexts, modules and loader workers start, the profiler starts and
stops. Two kinds of step are told apart from the others:

  - a step that holds such a cost, more of it than all other steps together, where the cost explains most of the time by
    which the ranks' devices idled longer than in the other steps;
  - a step that idles longer than all other steps together take. Whether that comes again, and how often, the recording
    does not say, and one event must not make the mean of all steps.

A cost in one step that is neither, a checkpoint every few steps say, is part of the rhythm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.completeness import longest_run
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.facts.model import Once, RankFacts, of_cause
from ddprof.analyzers.facts.work import compute_work
from ddprof.analyzers.job.model import LeftOut
from ddprof.causes import CAUSES
from ddprof.model import HealthNote
from ddprof.tables import Array
from ddprof.units import format_us

STARTING_UP = (Once.CONTEXT, Once.MEMORY, Once.MODULE)
WORTH_SAYING = 0.03  # of a step, from which a finding is a warning (docs/verdict.md)
MOST = 0.5  # of a step's excess, which one cause explains if it is more than all others
FEWEST_OTHERS = 2  # steps to compare with, before length alone says that a step is not one of them
WORDS = {
    Once.CONTEXT: "creating contexts",
    Once.MEMORY: "first allocations",
    Once.MODULE: "loading code",
    Once.BATCH: "the first batch",
    Once.OVERHEAD: "the profiler",
    Once.STARTING: "the start of the profiler",
    Once.STOPPING: "the end of the profiler",
}


@dataclass(frozen=True)
class _Walls:
    """Time of the ranks in their common steps, ns; `once` has one more axis, the kind of cost."""

    wall: Array  # (ranks, steps)
    busy: Array  # (ranks, steps), in compute
    idle: Array  # (ranks, steps), neither computing nor in exposed communication
    once: Array  # (kinds, ranks, steps)

    @property
    def job_wall(self) -> Array:
        """Length of each step on the typical rank."""
        return np.median(self.wall, axis=0)


def steady_steps(ranks: Sequence[RankFacts]) -> tuple[tuple[RankFacts, ...], tuple[LeftOut, ...]]:
    """The ranks with their steady steps alone, and what was left out, in order.

    Of several stretches of steady steps the longest is kept. All steps are kept where the ranks have no two steps in
    common.
    """
    unchanged = tuple(ranks)
    if not ranks or any(not len(f.steps) for f in ranks):
        return unchanged, ()
    numbers = ranks[0].steps["index"]
    for facts in ranks[1:]:
        numbers = np.intersect1d(numbers, facts.steps["index"])
    if len(numbers) < 2:
        return unchanged, ()
    walls = _walls(ranks, numbers)
    is_once = _occurring_once(walls)
    if not is_once.any():
        return unchanged, ()
    begin, end = longest_run(~is_once[::-1])  # backwards: of equals the last, when the process is warmer
    first, last = len(is_once) - end, len(is_once) - 1 - begin
    kept = tuple(_between(facts, int(numbers[first]), int(numbers[last])) for facts in ranks)

    def mostly(step: int) -> str:
        return f"mostly {_largest_cause(ranks, int(numbers[step]))}"

    left_out = [
        LeftOut(int(numbers[step]), round(float(walls.job_wall[step])), _why(walls, step, is_once) or mostly(step))
        for step in range(len(numbers))
        if not first <= step <= last
    ]
    return kept, tuple(left_out)


def left_out_note(left_out: Sequence[LeftOut], step_ns: int) -> list[HealthNote]:
    """What was left out, told once."""
    if not left_out:
        return []
    told = "; ".join(f"step {step.number} took {format_us(step.wall_ns / 1e3)} ({step.why})" for step in left_out)
    return [HealthNote(told, f"it occurred once and is not counted in the {format_us(step_ns / 1e3)} step", "info")]


def _walls(ranks: Sequence[RankFacts], numbers: Array) -> _Walls:
    shape = (len(ranks), len(numbers))
    wall, busy, idle = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    once = np.zeros((len(Once), *shape))
    for position, facts in enumerate(ranks):
        steps = facts.steps.take(np.flatnonzero(np.isin(facts.steps["index"], numbers)))
        lo, hi = steps.bounds
        wall[position] = hi - lo
        busy[position] = intervals.overlap(compute_work(facts), lo, hi)
        idle[position] = intervals.overlap(intervals.union(*facts.gaps.bounds), lo, hi)
        for kind in Once:
            spans = facts.once.take(facts.once["kind"] == kind)
            held = intervals.union(*spans.bounds)
            once[kind, position] = intervals.overlap(held, steps["mark_ns"], steps["mark_end_ns"])
    return _Walls(wall, busy, idle, once)


def _occurring_once(walls: _Walls) -> Array:
    """Which steps are left out; bool, shape (steps,)."""
    left_out = np.zeros(walls.wall.shape[1], bool)
    found = True
    while found:
        found = False
        for step in np.argsort(-walls.job_wall, kind="stable").tolist():
            others = ~left_out
            others[step] = False
            if left_out[step] or not others.any():
                continue
            if _holds_start(walls, step, others) or _outweighs(walls, step, others):
                left_out[step] = found = True
    return left_out


def _holds_start(walls: _Walls, step: int, others: Array) -> bool:
    """Whether costs that occur once explain most of what the step is longer than the others."""
    usual_ns = float(np.median(walls.job_wall[others]))
    if walls.job_wall[step] - usual_ns < WORTH_SAYING * usual_ns:  # less would be worth no finding
        return False
    held = sum(walls.once[kind, :, step] for kind in _kinds_once(walls, step, others))
    excess = np.maximum(0, walls.idle[:, step] - np.median(walls.idle[:, others], axis=1))
    enough = float(np.max(held)) >= WORTH_SAYING * usual_ns
    return enough and float(np.sum(np.minimum(held, excess))) > MOST * float(excess.sum())


def _kinds_once(walls: _Walls, step: int, others: Array) -> list[Once]:
    """Kinds of cost of which this step holds more than all others together. A batch is a first one only where the
    process starts.
    """
    longest = walls.once.max(axis=1)  # (kinds, steps), of any rank
    kinds = [kind for kind in Once if longest[kind, step] > longest[kind, others].sum()]
    if not any(kind in STARTING_UP for kind in kinds):
        kinds = [kind for kind in kinds if kind != Once.BATCH]
    return kinds


def _outweighs(walls: _Walls, step: int, others: Array) -> bool:
    """Whether the step computes nothing for longer than all others take together."""
    unused = np.median(walls.wall[:, step] - walls.busy[:, step])
    return int(others.sum()) >= FEWEST_OTHERS and float(unused) > float(walls.job_wall[others].sum())


def _between(facts: RankFacts, first: int, last: int) -> RankFacts:
    """The rank with the steps of these numbers alone."""
    index = facts.steps["index"]
    return with_steps(facts, np.flatnonzero((index >= first) & (index <= last)))


def _why(walls: _Walls, step: int, is_once: Array) -> str:
    """What the step was left out for, with the longest time of each cost on any rank; "" where it is only long."""
    if not is_once[step]:
        return "apart from the longest stretch of steady steps"
    others = ~is_once
    kinds = [k for k in _kinds_once(walls, step, others) if walls.once[k, :, step].max() > 0]
    kinds.sort(key=lambda kind: -walls.once[kind, :, step].max())
    usual_ns = float(np.median(walls.job_wall[others]))
    held = [(WORDS[k], float(walls.once[k, :, step].max())) for k in kinds]
    shown = [f"{words} {format_us(ns / 1e3)}" for words, ns in held if ns >= WORTH_SAYING * usual_ns]
    return ", ".join(shown)


def _largest_cause(ranks: Sequence[RankFacts], number: int) -> str:
    """Words of what takes most of a step's time without compute, on any rank."""
    taken = {"comm_wait": 0.0}
    for facts in ranks:
        lo, hi = facts.steps.take(np.flatnonzero(facts.steps["index"] == number)).bounds
        exposed = float(intervals.overlap(intervals.union(*facts.exposed.bounds), lo, hi).sum())
        taken["comm_wait"] = max(taken["comm_wait"], exposed)
        for cause in CAUSES:
            idle = intervals.union(*of_cause(facts.gaps, cause).bounds)
            taken[cause] = max(taken.get(cause, 0.0), float(intervals.overlap(idle, lo, hi).sum()))
    largest = max(taken, key=lambda cause: taken[cause])
    return "communication" if largest == "comm_wait" else CAUSES[largest].words

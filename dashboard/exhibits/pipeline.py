"""Pipeline: how large is the bubble, and are the stages even?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import compute_work
from ddprof.analyzers.job.ledger import stage_waiting
from ddprof.analyzers.job.model import JobFacts, Pipeline
from ddprof.analyzers.job.pipelines.bubble import bubble_share, schedule_of
from ddprof.analyzers.job.pipelines.messages import Passes, operations, passes_of
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.dashboard.exhibits.parts import numbers
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Way, sheet
from ddprof.dashboard.exhibits.parts.numbers import causes_by_step_us
from ddprof.dashboard.figures.charts import Part, Stacked, StageChart, TimeBlock
from ddprof.dashboard.runs.view import View
from ddprof.finding_ids import STRAGGLER_COMPUTE
from ddprof.intervals import Intervals
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us

# One step of a pipeline over time: forward and backward passes of each stage, other work, waiting for other stages.
#
# The drawing shows the ledger's times: its compute is filled, and waiting is the time it books to the bubble or
# comm_wait.


class StagePass(Struct, frozen=True):
    """A forward or backward pass: when it computes, ns on the reference clock; `number` 1, 2, ... in the order in which
    the stage runs its forward, or its backward, passes of the step.
    """

    number: int
    is_forward: bool
    busy: Intervals


class StageStep(Struct, frozen=True):
    """One stage in one step, ns on the reference clock.

    `other`: compute outside passes. `waiting`: exposed waits for other stages. `start_ns`, `end_ns`: the rank's step.
    """

    position: int
    start_ns: int
    end_ns: int
    passes: tuple[StagePass, ...]
    other: Intervals
    waiting: Intervals
    knows_backward: bool


def stage_steps(job: JobFacts, chain: tuple[int, ...], step: int) -> list[StageStep]:
    """One step of the ranks of a chain, first stage first. `step`: as on the pages, one that each of them has."""
    return [_stage_step(job, position, int(job.step_rows[position, step])) for position in chain]


def _stage_step(job: JobFacts, position: int, step: int) -> StageStep:
    facts, offset = job.ranks[position], job.clock.offset_ns(position)
    lo, hi = (int(bound[step]) for bound in facts.steps.bounds)
    work = intervals.clip(compute_work(facts), lo, hi)
    passes = passes_of(facts)
    numbered = _numbered(facts, passes, step, work)
    inside = intervals.merge(*(one.busy for one in numbered)) if numbered else intervals.EMPTY
    waiting = intervals.clip(stage_waiting(facts, job.members, position), lo, hi)
    return StageStep(
        position,
        lo - offset,
        hi - offset,
        tuple(StagePass(one.number, one.is_forward, _shifted(one.busy, offset)) for one in numbered),
        _shifted(intervals.subtract(work, inside), offset),
        _shifted(waiting, offset),
        passes.knows_backward,
    )


def _numbered(facts: RankFacts, launched: Passes, step: int, work: Intervals) -> list[StagePass]:
    """The passes launched in the step, numbered by direction; own clock. `work`: the step's compute."""
    start, end = operations(facts)
    counts = {True: 0, False: 0}
    passes = []
    for place in np.flatnonzero(launched.step == step).tolist():
        is_forward = bool(launched.is_forward[place])
        counts[is_forward] += 1
        of_pass = np.flatnonzero(launched.of_op == place)
        busy = intervals.intersect(intervals.union(start[of_pass], end[of_pass]), work)
        if len(busy[0]):
            passes.append(StagePass(counts[is_forward], is_forward, busy))
    return passes


def _shifted(spans: Intervals, offset_ns: int) -> Intervals:
    return spans[0] - offset_ns, spans[1] - offset_ns


_QUESTION = "How large is the bubble, and are the stages even?"
_COLUMNS = ("stage", "ranks", *(f"{part} (ms/step)" for part in ("work", "bubble", "waiting beyond it", "rest")))
FINEST = 1_000  # parts of the picture: a gap that is smaller cannot be seen, and is drawn closed
_SCHEDULE = "When does each stage run which microbatch, and where is it idle?"
_BLOCKS = (
    *("stage", "rank", "forward passes", "backward passes", "forward (ms)", "backward (ms)"),
    *("other work (ms)", "bubble (ms)", "waiting beyond it (ms)", "step (ms)"),
)
_KINDS = (("forward", "compute", False), ("backward", "compute", True), ("other work", "quiet", False))


@dataclass(frozen=True)
class Stage:
    """One stage, mean over its ranks, us per step."""

    number: int
    ranks: str
    work_us: float
    bubble_us: float
    wait_us: float
    rest_us: float  # of the step: transfer, copies, idle time of other causes


def has_data(view: View) -> bool:
    """True where the job has a pipeline."""
    return view.opened.job.pipeline is not None


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    pipeline = view.opened.job.pipeline
    if pipeline is None:
        reading = "This job has no pipeline: no regular point-to-point traffic between ranks was seen."
        yield Exhibit("pipeline", _QUESTION, reading, sheet(_COLUMNS, []))
        return
    yield stage_schedule(view, pipeline)
    stages = _stages(view, pipeline)
    rows = [(s.number, s.ranks, *(us / 1e3 for us in (s.work_us, s.bubble_us, s.wait_us, s.rest_us))) for s in stages]
    yield Exhibit("pipeline", _QUESTION, _reading(view, pipeline, stages), sheet(_COLUMNS, rows), _chart(stages))


def _stages(view: View, pipeline: Pipeline) -> list[Stage]:
    measures = view.opened.measures
    bubble, wait = measures.cause_us("pipeline_bubble"), measures.cause_us("comm_wait")
    stages = []
    for number, stage in enumerate(pipeline.stages):
        at = list(stage)
        work_us, bubble_us, wait_us = (float(values[at].mean()) for values in (measures.stage_work_us, bubble, wait))
        whole_us = float(measures.ledger_us[at].sum(axis=1).mean())
        rest_us = max(0.0, whole_us - work_us - bubble_us - wait_us)
        stages.append(Stage(number, format_ranks(measures.ranks(at)), work_us, bubble_us, wait_us, rest_us))
    return stages


def _reading(view: View, pipeline: Pipeline, stages: list[Stage]) -> str:
    slow = max(stages, key=lambda s: s.work_us)
    mean = sum(s.work_us for s in stages) / len(stages)
    excess = slow.work_us / mean - 1 if mean > 0 else 0.0
    late = [f for f in view.opened.report.findings if f.id == STRAGGLER_COMPUTE]
    but = f"; the slow device of {format_ranks(late[0].ranks)} has its part in that" if late else ""
    return (
        f"{_bubble_words(view, pipeline)} Stage {slow.number} ({slow.ranks}) has most of the work: "
        f"{format_us(slow.work_us)} per step, {100 * excess:+.0f} % against the mean{but}."
    )


def _bubble_words(view: View, pipeline: Pipeline) -> str:
    """Sentence on the measured bubble, beside that of a pipeline of even stages without other work."""
    depth, words = len(pipeline.stages), schedule_of(pipeline).words
    if pipeline.unsure:
        return f"How large the bubble of {depth} stages is cannot be told: {pipeline.unsure}."
    split = f" in {pipeline.interleave} chunks per stage" if pipeline.interleave > 1 else ""
    measures = view.opened.measures
    share = float(measures.cause_us("pipeline_bubble").mean()) / measures.step_us
    named = f"The schedule is {words}. " if words else ""
    ideal = bubble_share(pipeline, pipeline.microbatches, pipeline.interleave)
    return (
        f"{named}The unavoidable bubble of {depth} stages and {pipeline.microbatches} microbatches{split} is "
        f"{format_share(share)} of the step; with even stages and no other work it would be "
        f"{format_share(ideal / (1 + ideal))}."
    )


def _chart(stages: list[Stage]) -> Stacked:
    shown = (
        ("compute", "work", [s.work_us / 1e3 for s in stages]),
        ("pipeline_bubble", "unavoidable bubble", [s.bubble_us / 1e3 for s in stages]),
        ("comm_wait", "waiting beyond it", [s.wait_us / 1e3 for s in stages]),
        ("other", "rest of the step", [s.rest_us / 1e3 for s in stages]),
    )
    parts = [Part(cause, words, CAUSES[cause].color_name, values) for cause, words, values in shown]
    return Stacked([f"stage {s.number} ({s.ranks})" for s in stages], parts, "ms per step")


def stage_schedule(view: View, pipeline: Pipeline) -> Exhibit:
    """One step of one chain of stages, the first that passes the filters."""
    chains = list(zip(*pipeline.stages, strict=True))
    chosen = [chain for chain in chains if any(view.shows(view.opened.job.rank_ids[p]) for p in chain)]
    rows = view.opened.job.step_rows
    steps = [step for step in numbers.steps(view) if chosen and (rows[list(chosen[0]), step] >= 0).all()]
    if not steps:
        reading = "No step of a whole chain of stages was recorded."
        return Exhibit("schedule", _SCHEDULE, reading, sheet(_BLOCKS, []), follows=("ranks", "steps"))
    lengths = np.array([view.opened.job.per_step_ns[step] for step in steps], float)
    step = steps[int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])]  # of median length
    stages = stage_steps(view.opened.job, chosen[0], step)
    booked_us = causes_by_step_us(view.opened.job)[:, step]
    blocks = [_row(view, number, stage, booked_us[stage.position]) for number, stage in enumerate(stages)]
    shown = _shown_words(view, stages, step, len(chains))
    reading = f"{shown} {_split_words(blocks)}{_missing_words(stages, pipeline)}"
    chart = _schedule_chart(view, stages)
    ways = (Way(f"Step {step} in the timeline", "/timeline", (("steps", str(step)),)),)
    return Exhibit("schedule", _SCHEDULE, reading, sheet(_BLOCKS, blocks), chart, ("ranks", "steps"), ways=ways)


def _row(view: View, number: int, stage: StageStep, booked_us: Array) -> tuple[int | float, ...]:
    """The stage's times, ms; bubble and waiting as the ledger books them, (causes,)."""
    booked = [float(booked_us[CAUSE_CODE[cause]]) / 1e3 for cause in ("pipeline_bubble", "comm_wait")]
    forward, backward = ([one for one in stage.passes if one.is_forward is way] for way in (True, False))
    work = [sum(intervals.length(one.busy) for one in some) / 1e6 for some in (forward, backward)]
    counts = (len(forward), len(backward))
    other = intervals.length(stage.other) / 1e6
    length = (stage.end_ns - stage.start_ns) / 1e6
    return (number, view.opened.job.rank_ids[stage.position], *counts, *work, other, *booked, length)


def _shown_words(view: View, stages: list[StageStep], step: int, chains: int) -> str:
    ranks = format_ranks([view.opened.job.rank_ids[stage.position] for stage in stages])
    of = f", one of {chains} chains of stages" if chains > 1 else ""
    count = "the step of median length" if view.steps is None else "the chosen step of median length"
    return f"Step {step} ({count}) of {ranks}{of}; passes are numbered in the order in which a stage runs them."


def _split_words(rows: list[tuple[int | float, ...]]) -> str:
    whole = sum(row[-1] for row in rows) or 1.0
    bubble, beyond = (sum(row[place] for row in rows) / whole for place in (-3, -2))
    return (
        f"Gaps are idle time: {format_share(bubble)} of the stages' time is the unavoidable bubble, "
        f"{format_share(beyond)} waiting beyond it."
    )


def _missing_words(stages: list[StageStep], pipeline: Pipeline) -> str:
    """Limits of the recording, in words."""
    if not any(stage.passes for stage in stages):
        return " Which pass is which is not recorded: all of it is other work."
    if not all(stage.knows_backward for stage in stages):
        return " Forward and backward are not told apart on stages where one thread launches both."
    return f" How many microbatches there are is unsure: {pipeline.unsure}." if pipeline.unsure else ""


def _schedule_chart(view: View, stages: list[StageStep]) -> StageChart:
    origin = min(stage.start_ns for stage in stages)
    least_ns = (max(stage.end_ns for stage in stages) - origin) // FINEST
    blocks = [block for line, stage in enumerate(stages) for block in _blocks(line, stage, origin, least_ns)]
    lines = [f"stage {number} (rank {view.opened.job.rank_ids[stage.position]})" for number, stage in enumerate(stages)]
    return StageChart(lines, blocks, _KINDS, "ms since the step begins")


def _blocks(line: int, stage: StageStep, origin_ns: int, least_ns: int) -> Iterator[TimeBlock]:
    for one in stage.passes:
        name = f"{'forward' if one.is_forward else 'backward'} {one.number}"
        drawn = _closed(one.busy, least_ns)
        longest = int((drawn[1] - drawn[0]).argmax())
        for part, (start, end) in enumerate(zip(*drawn, strict=True)):
            mark = str(one.number) if part == longest else ""
            kind = 0 if one.is_forward else 1
            yield _block(line, int(start) - origin_ns, int(end - start), kind, mark, f"stage {line}: {name}")
    for start, end in zip(*_closed(stage.other, least_ns), strict=True):
        yield _block(line, int(start) - origin_ns, int(end - start), 2, "", f"stage {line}: other work")


def _block(line: int, start_ns: int, length_ns: int, kind: int, mark: str, words: str) -> TimeBlock:
    return TimeBlock(line, start_ns / 1e6, length_ns / 1e6, kind, mark, f"{words}, {length_ns / 1e6:.4g} ms")


def _closed(spans: Intervals, least_ns: int) -> Intervals:
    """The spans with invisibly small gaps closed."""
    start, end = spans
    if not len(start):
        return spans
    wide = start[1:] - end[:-1] > least_ns
    return start[np.append(True, wide)], end[np.append(wide, True)]

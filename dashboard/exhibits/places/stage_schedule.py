"""Stages of a pipeline over one step: which pass runs when, and where a stage stands still."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import intervals
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.pipelines.picture import StageStep, stage_steps
from ddprof.causes import CAUSE_CODE
from ddprof.dashboard.exhibits.parts import numbers
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Way, sheet
from ddprof.dashboard.exhibits.parts.numbers import cause_by_step_us
from ddprof.dashboard.figures.charts import StageChart, TimeBlock
from ddprof.dashboard.runs.view import View
from ddprof.intervals import Intervals
from ddprof.units import format_ranks, format_share

FINEST = 1_000  # parts of the picture: a gap that is smaller cannot be seen, and is drawn closed
_QUESTION = "When does each stage run which microbatch, and where does it stand still?"
_COLUMNS = (
    "stage",
    "rank",
    "forward passes",
    "backward passes",
    "forward (ms)",
    "backward (ms)",
    "other work (ms)",
    "bubble (ms)",
    "waiting beyond it (ms)",
    "step (ms)",
)
_KINDS = (("forward", "compute", False), ("backward", "compute", True), ("other work", "quiet", False))


def stage_schedule(view: View, pipeline: Pipeline) -> Exhibit:
    """One step of one chain of stages: the first that the filters leave."""
    steps = numbers.steps(view)
    chains = list(zip(*pipeline.stages, strict=True))
    chosen = [chain for chain in chains if any(view.shows(view.opened.job.rank_ids[p]) for p in chain)]
    if not steps or not chosen:
        reading = "No step of a whole chain of stages was recorded."
        return Exhibit("schedule", _QUESTION, reading, sheet(_COLUMNS, []), follows=("ranks", "steps"))
    step = _typical(view, steps)
    stages = stage_steps(view.opened.job, chosen[0], step)
    rows = [_row(view, number, stage, step) for number, stage in enumerate(stages)]
    reading = f"{_shown_words(view, stages, step, len(chains))} {_split_words(rows)}{_missing_words(stages, pipeline)}"
    chart = _chart(view, stages)
    ways = (Way(f"Step {step} in the timeline", "/timeline", (("steps", str(step)),)),)
    return Exhibit("schedule", _QUESTION, reading, sheet(_COLUMNS, rows), chart, ("ranks", "steps"), ways=ways)


def _typical(view: View, steps: list[int]) -> int:
    """The step of median length."""
    lengths = np.array([view.opened.job.per_step_ns[step] for step in steps], float)
    return steps[int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])]


def _row(view: View, number: int, stage: StageStep, step: int) -> tuple[int | float, ...]:
    """The stage's times, ms; bubble and waiting as the ledger books them."""
    job = view.opened.job
    booked = [
        float(cause_by_step_us(job, CAUSE_CODE[cause])[stage.position, step]) / 1e3
        for cause in ("pipeline_bubble", "comm_wait")
    ]
    forward, backward = ([one for one in stage.passes if one.is_forward is way] for way in (True, False))
    work = [sum(intervals.length(one.busy) for one in some) / 1e6 for some in (forward, backward)]
    counts = (len(forward), len(backward))
    other = intervals.length(stage.other) / 1e6
    length = (stage.end_ns - stage.start_ns) / 1e6
    return (number, job.rank_ids[stage.position], *counts, *work, other, *booked, length)


def _shown_words(view: View, stages: list[StageStep], step: int, chains: int) -> str:
    ranks = format_ranks([view.opened.job.rank_ids[stage.position] for stage in stages])
    of = f", one of {chains} chains of stages" if chains > 1 else ""
    count = "the step of median length" if view.steps is None else "the chosen step of median length"
    return f"Step {step} ({count}) of {ranks}{of}; passes are numbered in the order in which a stage runs them."


def _split_words(rows: list[tuple[int | float, ...]]) -> str:
    whole = sum(row[-1] for row in rows) or 1.0
    bubble, beyond = (sum(row[place] for row in rows) / whole for place in (-3, -2))
    return (
        f"What is empty is no compute: {format_share(bubble)} of the stages' time is the unavoidable bubble, "
        f"{format_share(beyond)} waiting beyond it."
    )


def _missing_words(stages: list[StageStep], pipeline: Pipeline) -> str:
    """What the recording does not tell."""
    if not any(stage.passes for stage in stages):
        return " Which pass is which is not recorded of ranks that compute on the CPU: all of it is other work."
    if not all(stage.knows_backward for stage in stages):
        return " Forward and backward are not told apart on stages where one thread launches both."
    return f" How many microbatches there are is unsure: {pipeline.unsure}." if pipeline.unsure else ""


def _chart(view: View, stages: list[StageStep]) -> StageChart:
    origin = min(stage.start_ns for stage in stages)
    least_ns = (max(stage.end_ns for stage in stages) - origin) // FINEST
    blocks = [block for line, stage in enumerate(stages) for block in _blocks(line, stage, origin, least_ns)]
    lines = [f"stage {number} (rank {view.opened.job.rank_ids[stage.position]})" for number, stage in enumerate(stages)]
    used = {block.kind for block in blocks}
    kinds = [kind for number, kind in enumerate(_KINDS) if number in used]
    place = {number: at for at, number in enumerate(sorted(used))}
    moved = [TimeBlock(b.line, b.start, b.length, place[b.kind], b.mark, b.words) for b in blocks]
    return StageChart(lines, moved, kinds, "ms since the step begins")


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
    """The spans with gaps that cannot be seen closed."""
    start, end = spans
    if not len(start):
        return spans
    wide = start[1:] - end[:-1] > least_ns
    return start[np.append(True, wide)], end[np.append(wide, True)]

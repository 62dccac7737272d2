"""Pipeline: how large is the bubble, and are the stages even?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddprof.analyzers.job.model import Pipeline
from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.places.stage_schedule import stage_schedule
from ddprof.dashboard.figures.charts import Part, Stacked
from ddprof.dashboard.runs.view import View
from ddprof.units import format_ranks, format_share, format_us

_QUESTION = "How large is the bubble, and are the stages even?"
_COLUMNS = ("stage", "ranks", "work (ms/step)", "bubble (ms/step)", "waiting beyond it (ms/step)")


@dataclass(frozen=True)
class Stage:
    """One stage, mean over its ranks, us per step."""

    number: int
    ranks: str
    work_us: float
    bubble_us: float
    wait_us: float


def has_data(view: View) -> bool:
    """Whether the job has a pipeline."""
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
    rows = [(s.number, s.ranks, s.work_us / 1e3, s.bubble_us / 1e3, s.wait_us / 1e3) for s in stages]
    yield Exhibit("pipeline", _QUESTION, _reading(view, pipeline, stages), sheet(_COLUMNS, rows), _chart(stages))


def _stages(view: View, pipeline: Pipeline) -> list[Stage]:
    measures = view.opened.measures
    bubble, wait = measures.cause_us("pipeline_bubble"), measures.cause_us("comm_wait")
    found = []
    for number, stage in enumerate(pipeline.stages):
        at = list(stage)
        means = [float(values[at].mean()) for values in (measures.stage_work_us, bubble, wait)]
        found.append(Stage(number, format_ranks(measures.ranks(at)), *means))
    return found


def _reading(view: View, pipeline: Pipeline, stages: list[Stage]) -> str:
    slow = max(stages, key=lambda s: s.work_us)
    mean = sum(s.work_us for s in stages) / len(stages)
    excess = slow.work_us / mean - 1 if mean > 0 else 0.0
    late = [f for f in view.opened.report.findings if f.id == "straggler.compute"]
    but = f"; the slow device of {format_ranks(late[0].ranks)} has its part in that" if late else ""
    return (
        f"{_bubble_words(view, pipeline)} Stage {slow.number} ({slow.ranks}) has most of the work: "
        f"{format_us(slow.work_us)} per step, {100 * excess:+.0f} % against the mean{but}."
    )


def _bubble_words(view: View, pipeline: Pipeline) -> str:
    """The bubble that was measured, beside the one of a pipeline of even stages that does nothing else."""
    depth, chunks = len(pipeline.stages), pipeline.microbatches * pipeline.interleave
    if pipeline.unsure:
        return f"How large the bubble of {depth} stages is cannot be told: {pipeline.unsure}."
    split = f" in {pipeline.interleave} chunks per stage" if pipeline.interleave > 1 else ""
    measures = view.opened.measures
    share = float(measures.cause_us("pipeline_bubble").mean()) / measures.step_us
    return (
        f"The unavoidable bubble of {depth} stages and {pipeline.microbatches} microbatches{split} is "
        f"{format_share(share)} of the step; with even stages that do nothing beside their passes it would be "
        f"{format_share((depth - 1) / (chunks + depth - 1))}."
    )


def _chart(stages: list[Stage]) -> Stacked:
    words = {"compute": "work", "pipeline_bubble": "unavoidable bubble", "comm_wait": "waiting beyond it"}
    values = {
        "compute": [s.work_us / 1e3 for s in stages],
        "pipeline_bubble": [s.bubble_us / 1e3 for s in stages],
        "comm_wait": [s.wait_us / 1e3 for s in stages],
    }
    parts = [Part(cause, text, CAUSES[cause].color_name, values[cause]) for cause, text in words.items()]
    return Stacked([f"stage {s.number} ({s.ranks})" for s in stages], parts, "ms per step")

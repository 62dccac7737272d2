"""Pipeline: how large is the bubble, and are the stages even?"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.facts.model import CAUSE
from ddprof.dashboard.exhibit import Exhibit, sheet
from ddprof.dashboard.figures.bars import stacked
from ddprof.dashboard.figures.base import palette
from ddprof.dashboard.view import View

from ddprof.units import format_ranks, format_us


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    yield _stages(view)


def _stages(view: View) -> Exhibit:
    job, measures = view.session.job, view.session.measures
    question, columns = "How large is the bubble, and are the stages even?", ("stage", "ranks", "work (ms/step)", "bubble (ms/step)", "waiting beyond it (ms/step)")
    pipeline = job.pipeline
    if pipeline is None:
        reading = "This job has no pipeline: no regular point-to-point traffic between ranks was seen."
        return Exhibit("pipeline", question, reading, sheet(columns, []))
    rows = []
    for number, stage in enumerate(pipeline.stages):
        positions = list(stage)
        mean = [float(values[positions].mean()) / 1e3 for values in (measures.stage_work_us, measures.ledger_us[:, CAUSE["pipeline_bubble"]], measures.ledger_us[:, CAUSE["comm_wait"]])]  # fmt: skip
        rows.append((number, format_ranks([job.rank_ids[p] for p in positions]), *mean))
    depth, chunks = len(pipeline.stages), pipeline.microbatches * pipeline.interleave
    share = (depth - 1) / (chunks + depth - 1)
    slow = max(rows, key=lambda r: r[2])
    mean_work = sum(r[2] for r in rows) / depth
    reading = (
        f"{depth} stages and {pipeline.microbatches} microbatches leave an unavoidable bubble of {share:.0%} of the pipeline's time. "
        f"Stage {slow[0]} ({slow[1]}) has the most work: {format_us(slow[2] * 1e3)} per step, {slow[2] / max(mean_work, 1e-9) - 1:+.0%} against the mean."
    )
    colors = palette(view.dark)
    looks = {c: (w, colors.cause(c)) for c, w in (("compute", "work"), ("pipeline_bubble", "unavoidable bubble"), ("comm_wait", "waiting beyond it"))}
    parts = {"compute": [r[2] for r in rows], "pipeline_bubble": [r[3] for r in rows], "comm_wait": [r[4] for r in rows]}
    return Exhibit("pipeline", question, reading, sheet(columns, rows), stacked([f"stage {r[0]} ({r[1]})" for r in rows], parts, looks, colors, "ms per step"))

"""The page Pipeline: a picture of one step whose bubble is the ledger's, and what is not recorded is said."""

from dataclasses import replace

import pytest

from ddprof.causes import CAUSE_CODE
from ddprof.dashboard.exhibits.parts.numbers import cause_by_step_us
from ddprof.dashboard.exhibits.pipeline import stage_schedule
from ddprof.dashboard.figures.charts import StageChart
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View


def test_the_table_has_the_ledgers_bubble_the_picture_every_pass_and_what_is_unsure_is_said(pipeline: OpenRun) -> None:
    found = pipeline.job.pipeline
    assert found is not None
    exhibit = stage_schedule(View(pipeline, {"steps": "1"}, (pipeline,)), found)
    bubble = cause_by_step_us(pipeline.job, CAUSE_CODE["pipeline_bubble"])[:, 1] / 1e3
    of_rank = dict(zip(pipeline.job.rank_ids, bubble.tolist(), strict=True))
    column = exhibit.sheet.columns.index("bubble (ms)")
    assert [row[column] for row in exhibit.sheet.rows] == pytest.approx([of_rank[row[1]] for row in exhibit.sheet.rows])
    chart = exhibit.chart
    assert isinstance(chart, StageChart) and len(chart.lines) == len(found.stages)
    passes = found.microbatches * found.interleave
    for line in range(len(chart.lines)):
        marks = [block.mark for block in chart.blocks if block.line == line and block.mark]
        assert sorted(marks, key=int) == sorted([str(n) for n in range(1, passes + 1)] * 2, key=int)
    assert exhibit.reading.startswith("Step 1 ")
    exhibit = stage_schedule(View(pipeline, {}, (pipeline,)), replace(found, unsure="records are missing"))
    assert exhibit.reading.endswith("How many microbatches there are is unsure: records are missing.")

"""The step dot plot of the Overview, the peak of the page Memory and the picture of one step of the page Pipeline."""

from dataclasses import replace

import numpy as np
import pytest

from ddprof.causes import CAUSE_CODE
from ddprof.dashboard.exhibits import memory, overview
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.exhibits.parts.numbers import cause_by_step_us, rank_steps_us, step_count
from ddprof.dashboard.exhibits.pipeline import stage_schedule
from ddprof.dashboard.figures.charts import Dots, Stacked, StageChart
from ddprof.dashboard.figures.scales import spread
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.report.model import Report
from tests.dashboard.browsing import Sample
from tests.dashboard.made import alone, with_job


def _shown(opened: OpenRun, **query: str) -> tuple[Exhibit, Dots]:
    exhibit = overview.step_dots(alone(opened, **query))
    assert exhibit is not None and isinstance(exhibit.chart, Dots)
    return exhibit, exhibit.chart


def _slowed(opened: OpenRun, position: int, step: int, factor: float) -> OpenRun:
    """The run with one step of one rank `factor` times as long."""
    ranks = list(opened.job.ranks)
    steps = ranks[position].steps
    end_ns = steps["end_ns"].copy()
    end_ns[step] += round((end_ns[step] - steps["start_ns"][step]) * (factor - 1))
    ranks[position] = replace(ranks[position], steps=steps.replace(end_ns=end_ns))
    return with_job(opened, ranks=tuple(ranks))


def test_every_rank_and_step_has_its_dot_and_filters_leave_theirs(straggler: OpenRun) -> None:
    exhibit, dots = _shown(straggler)
    job, times = straggler.job, rank_steps_us(straggler.job)
    assert len(dots.values) == len(job.ranks) * step_count(job) == len(exhibit.sheet.rows) and dots.ranks is not None
    for step, rank, value in zip(dots.steps, dots.ranks, dots.values, strict=True):
        assert value == pytest.approx(times[job.rank_ids.index(rank), step] / 1e3)
    assert dots.outliers == [] and "stand out" not in exhibit.reading
    _, dots = _shown(straggler, ranks="1,3", steps="0")
    assert dots.steps == [0, 0] and dots.ranks == [1, 3]


def test_what_stands_out_is_named_and_of_too_many_stays(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    rank, slowed = straggler.job.rank_ids[2], _slowed(straggler, 2, 1, 1.6)
    exhibit, dots = _shown(slowed)
    assert dots.ranks is not None and [(dots.ranks[i], dots.steps[i]) for i in dots.outliers] == [(rank, 1)]
    assert f"farthest rank {rank} in step 1" in exhibit.reading
    monkeypatch.setattr(overview, "MAX_DOTS", 4)
    exhibit, dots = _shown(slowed)
    assert len(dots.values) <= 4 and len(dots.outliers) == 1
    assert dots.values[dots.outliers[0]] == max(row[2] for row in exhibit.sheet.rows)
    assert f"of {len(exhibit.sheet.rows)} dots" in exhibit.reading


def test_a_saved_report_has_the_jobs_steps_and_ranks_stand_side_by_side(straggler_report: Report) -> None:
    exhibit, dots = _shown(OpenRun(straggler_report))
    assert dots.ranks is None and dots.values == [99.0, 101.0, 100.5, 99.5]
    assert "The median of 4 steps is 100 ms" in exhibit.reading
    places = spread(Dots([0, 0, 0, 1, 1, 1], [1.0] * 6, 1.0, [4, 5, 9, 4, 5, 9]))
    assert list(places) == pytest.approx([-0.35, 0.0, 0.35, 0.65, 1.0, 1.35])


def test_the_peak_is_what_was_held_and_what_phases_added_where_that_is_known(sample: Sample) -> None:
    full = sample("full_memory")
    exhibit = memory.memory_peak(alone(full))
    rows = exhibit.sheet.rows
    assert rows and all(row[4] + sum(row[5:]) == row[3] for row in rows) and isinstance(exhibit.chart, Stacked)
    summed = np.sum([part.values for part in exhibit.chart.parts], axis=0)
    assert summed == pytest.approx([row[3] / 2**30 for row in rows])
    assert "parameters, gradients and states of the optimizer are not told apart" in exhibit.reading
    assert "of the device is left" in next(iter(memory.exhibits(alone(full)))).reading
    ranks = tuple(replace(facts, memory={**facts.memory, "curve": {}}) for facts in full.job.ranks)
    exhibit = memory.memory_peak(alone(with_job(full, ranks=ranks)))
    assert exhibit.chart is None and exhibit.reading.startswith("Not known")


def test_the_table_has_the_ledgers_bubble_the_picture_every_pass_and_what_is_unsure_is_said(pipeline: OpenRun) -> None:
    recorded = pipeline.job.pipeline
    assert recorded is not None
    exhibit = stage_schedule(alone(pipeline, steps="1"), recorded)
    bubble = cause_by_step_us(pipeline.job, CAUSE_CODE["pipeline_bubble"])[:, 1] / 1e3
    of_rank = dict(zip(pipeline.job.rank_ids, bubble.tolist(), strict=True))
    column = exhibit.sheet.columns.index("bubble (ms)")
    assert [row[column] for row in exhibit.sheet.rows] == pytest.approx([of_rank[row[1]] for row in exhibit.sheet.rows])
    chart = exhibit.chart
    assert isinstance(chart, StageChart) and len(chart.lines) == len(recorded.stages)
    passes = [*range(1, recorded.microbatches * recorded.interleave + 1)] * 2
    for line in range(len(chart.lines)):
        marks = [int(block.mark) for block in chart.blocks if block.line == line and block.mark]
        assert sorted(marks) == sorted(passes)
    assert exhibit.reading.startswith("Step 1 ")
    exhibit = stage_schedule(alone(pipeline), replace(recorded, unsure="records are missing"))
    assert exhibit.reading.endswith("How many microbatches there are is unsure: records are missing.")

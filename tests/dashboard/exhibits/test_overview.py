"""The step dot plot has a dot per rank and step, and marks and names the one that stands out."""

from dataclasses import replace

import numpy as np
import pytest

from ddprof.dashboard.exhibits import overview as module
from ddprof.dashboard.exhibits.overview import step_dots
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.exhibits.parts.numbers import rank_steps_us, step_count
from ddprof.dashboard.figures.charts import Dots
from ddprof.dashboard.figures.scales import spread
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report.model import Report
from tests.dashboard.changed import with_job


def _shown(opened: OpenRun, **query: str) -> tuple[Exhibit, Dots]:
    found = step_dots(View(opened, query, (opened,)))
    assert found is not None and isinstance(found.chart, Dots)
    return found, found.chart


def _slowed(opened: OpenRun, position: int, step: int, factor: float) -> OpenRun:
    """The run with one step of one rank `factor` times as long."""
    facts = opened.job.ranks[position]
    end_ns = facts.steps["end_ns"].copy()
    end_ns[step] += round((end_ns[step] - facts.steps["start_ns"][step]) * (factor - 1))
    ranks = list(opened.job.ranks)
    ranks[position] = replace(facts, steps=facts.steps.replace(end_ns=end_ns))
    return with_job(opened, ranks=tuple(ranks))


def test_every_rank_and_step_has_its_dot_and_filters_leave_theirs(straggler: OpenRun) -> None:
    exhibit, dots = _shown(straggler)
    job = straggler.job
    assert len(dots.values) == len(job.ranks) * step_count(job) == len(exhibit.sheet.rows)
    assert dots.ranks is not None
    times = rank_steps_us(job)
    for step, rank, value in zip(dots.steps, dots.ranks, dots.values, strict=True):
        assert value == pytest.approx(times[job.rank_ids.index(rank), step] / 1e3)
    assert dots.outliers == [] and "stand out" not in exhibit.reading
    _, dots = _shown(straggler, ranks="1,3", steps="0")
    assert dots.steps == [0, 0] and dots.ranks == [1, 3]


def test_what_stands_out_is_named_and_of_too_many_stays(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = straggler.job.rank_ids[2]
    exhibit, dots = _shown(_slowed(straggler, 2, 1, 1.6))
    assert dots.ranks is not None and [(dots.ranks[i], dots.steps[i]) for i in dots.outliers] == [(rank, 1)]
    assert f"farthest rank {rank} in step 1" in exhibit.reading
    monkeypatch.setattr(module, "MAX_DOTS", 4)
    exhibit, dots = _shown(_slowed(straggler, 2, 1, 1.6))
    assert len(dots.values) <= 4 and len(dots.outliers) == 1
    assert dots.values[dots.outliers[0]] == max(row[2] for row in exhibit.sheet.rows)
    assert f"of {len(exhibit.sheet.rows)} dots" in exhibit.reading


def test_a_saved_report_has_the_jobs_steps_and_ranks_stand_side_by_side(straggler_report: Report) -> None:
    exhibit, dots = _shown(OpenRun(straggler_report))
    assert dots.ranks is None and dots.values == [99.0, 101.0, 100.5, 99.5]
    assert "The median of 4 steps is 100 ms" in exhibit.reading
    dots = Dots([0, 0, 0, 1, 1, 1], [1.0] * 6, 1.0, [4, 5, 9, 4, 5, 9])
    places = np.array(spread(dots))
    assert places[:3] == pytest.approx([-0.35, 0.0, 0.35]) and places[3:] == pytest.approx([0.65, 1.0, 1.35])

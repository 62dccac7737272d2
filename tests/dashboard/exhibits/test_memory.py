"""The page Memory: the peak explained as far as it was recorded, what is left, and the words for what is not known."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ddprof.dashboard.exhibits.memory import exhibits, memory_peak
from ddprof.dashboard.figures.charts import Stacked
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from tests.dashboard.changed import with_job


def test_the_peak_is_what_was_held_and_what_phases_added_where_that_is_known(sample: Callable[[str], OpenRun]) -> None:
    full = sample("full_memory")
    exhibit = memory_peak(View(full, {}, (full,)))
    for row in exhibit.sheet.rows:
        assert row[4] + sum(row[5:]) == row[3]
    assert isinstance(exhibit.chart, Stacked)
    assert [sum(values) for values in zip(*(part.values for part in exhibit.chart.parts), strict=True)] == (
        pytest.approx([row[3] / 2**30 for row in exhibit.sheet.rows])
    )
    assert "parameters, gradients and states of the optimizer are not told apart" in exhibit.reading
    assert "of the device is left" in next(iter(exhibits(View(full, {}, (full,))))).reading
    ranks = tuple(replace(facts, memory={**facts.memory, "curve": {}}) for facts in full.job.ranks)
    bare = with_job(full, ranks=ranks)
    exhibit = memory_peak(View(bare, {}, (bare,)))
    assert exhibit.chart is None and exhibit.reading.startswith("Not known")

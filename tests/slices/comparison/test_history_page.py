"""The page History: a bar and a row per served run, the change marked on its bar."""

from dataclasses import replace

from ddprof.dashboard.figures.charts import Stacked
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report.model import Report
from ddprof.slices.comparison.history_page import exhibits


def at(report: Report, number: int, factor: float) -> OpenRun:
    """The report with steps this much longer, made in the order of its number."""
    wall_us = report.steps.wall_us * factor
    steps_us = tuple(wall_us * (1 + 0.001 * (n - 2)) for n in range(5))
    run = replace(report.run, name=f"run-{number}", paths=(), started_unix_s=1e9 + number)
    return OpenRun(replace(report, run=run, steps=replace(report.steps, wall_us=wall_us, per_step_us=steps_us)))


def test_bars_and_rows_are_the_runs_by_date_with_the_change_marked(straggler_report: Report) -> None:
    runs = tuple(at(straggler_report, n, factor) for n, factor in ((2, 1.3), (0, 1.0), (1, 1.0)))
    view = View(runs[0], {}, runs)
    (exhibit,) = exhibits(view)
    assert isinstance(exhibit.chart, Stacked) and list(exhibit.chart.labels) == ["run-0", "run-1", "▲ run-2"]
    assert [row[0] for row in exhibit.sheet.rows] == ["run-0", "run-1", "run-2"]
    assert "slower by" in exhibit.sheet.rows[2][5] and exhibit.sheet.rows[1][5] == ""
    assert exhibit.reading.startswith("3 runs, 1 change of the step")
    assert not page_at("/history").subject.is_empty(view)


def test_one_run_has_no_history_and_runs_without_steps_are_said_to_have_none(straggler_report: Report) -> None:
    only = OpenRun(straggler_report)
    view = View(only, {}, (only,))
    assert list(exhibits(view)) == [] and page_at("/history").subject.is_empty(view)
    assert "ddprof serve FOLDER" in str(page_at("/history").content(view))
    empty = OpenRun(replace(straggler_report, steps=replace(straggler_report.steps, wall_us=float("nan"))))
    (exhibit,) = exhibits(View(empty, {}, (empty, empty)))
    assert exhibit.reading == "No run has a measured step."

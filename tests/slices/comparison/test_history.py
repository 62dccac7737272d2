"""Runs over time, their command and page: changes beyond the noise, of the steps and from run to run, and no others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddprof.dashboard.figures.charts import Stacked
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report.json.contract import from_contract, to_contract
from ddprof.report.model import Report, Steps
from ddprof.slices.comparison.history import (
    TAIL,
    PastRun,
    _crept_us,
    history,
    history_headline,
    render_text,
    to_json,
    when_words,
)
from ddprof.slices.comparison.history_page import exhibits

HOUR_S = 3_600.0


def run(report: Report, number: int, mean_us: float, spread_us: float = 200.0, **info: object) -> tuple[str, Report]:
    """A run of twelve steps with this mean, made in the order of its number."""
    steps = Steps(12, "profiler_step", mean_us, tuple((mean_us + spread_us * np.linspace(-1, 1, 12)).tolist()))
    told = replace(report.run, started_unix_s=1.7e9 + number * HOUR_S, **info)
    return f"run-{number}", replace(report, steps=steps, run=told)


def runs(report: Report, means_us: list[float], spread_us: float = 200.0) -> list[PastRun]:
    return history([run(report, n, mean_us, spread_us) for n, mean_us in enumerate(means_us)])


def changes(entries: list[PastRun]) -> list[tuple[str, str]]:
    return [(entry.name, entry.change) for entry in entries if entry.change]


def test_a_step_change_is_marked_once_at_its_run_and_variation_is_none(straggler_report: Report) -> None:
    entries = runs(straggler_report, [100e3, 100.4e3, 99.7e3, 100.1e3, 120e3, 120.3e3, 119.8e3, 90e3])
    assert changes(entries) == [("run-4", "slower"), ("run-7", "faster")]
    assert entries[4].change_us == pytest.approx(19.9e3)
    assert history_headline(entries).startswith("8 runs, 2 changes of the step; the last at run-7: faster by")
    assert changes(runs(straggler_report, [100e3, 103e3, 99e3], 30e3)) == []
    assert changes(runs(straggler_report, [100e3, 100.9e3, 100e3, 100.8e3, 102.2e3], 50.0)) == [("run-4", "slower")]


def test_steps_that_creep_are_a_change_told_with_the_run_where_that_began(straggler_report: Report) -> None:
    """Each run is half a percent slower than the one before: none of them alone is a change."""
    entries = runs(straggler_report, [100e3 + 500 * n + 60 * (-1) ** n for n in range(6)], 50.0)
    assert [(e.name, e.change, e.since) for e in entries if e.change] == [("run-4", "slower", "run-0")]
    assert entries[4].change_us == pytest.approx(2e3, rel=0.05)
    assert "slower by 2 ms little by little since run-0" in render_text(entries)
    assert to_json(entries)["runs"][4]["since"] == "run-0"


def test_runs_that_vary_by_chance_do_not_creep() -> None:
    """Sixty runs each: a false alarm is due in one such history of twenty."""
    steps_us = 100e3 * (1 + 0.02 * np.random.default_rng(7).standard_normal((200, 60)))
    assert np.mean([any(_crept_us(row[:n], TAIL / 60) for n in range(1, 61)) for row in steps_us]) < 0.05
    assert _crept_us(100e3 * np.array([1, 1.0004, 1.0008, 1.0012, 1.0016]), TAIL) == 0.0  # certain, and too small


def test_order_is_that_of_time_and_another_kind_of_job_begins_anew(straggler_report: Report) -> None:
    late, early = run(straggler_report, 9, 1e5), run(straggler_report, 1, 1e5)
    empty = ("empty", replace(straggler_report, steps=Steps(0, "none", float("nan"))))
    undated = ("undated", replace(early[1], run=replace(early[1].run, started_unix_s=None)))
    assert [e.name for e in history([late, early, empty, undated])] == ["undated", "run-1", "run-9"]
    assert history([empty]) == []
    entries = history([run(straggler_report, 0, 1e5), run(straggler_report, 1, 3e5, world_size=64)])
    assert changes(entries) == [("run-1", "other")] and "ranks" in entries[1].why and entries[1].change_us is None


def test_text_and_json_say_the_same_and_dates_and_commits_survive_the_contract(straggler_report: Report) -> None:
    entries = history([run(straggler_report, 0, 100e3), run(straggler_report, 1, 130e3, commit="c0ffee" * 7)])
    text, document = render_text(entries), json.loads(json.dumps(to_json(entries), allow_nan=False))
    assert "▲ run-1" in text and "slower by 30 ms" in text and "commit c0ffeec0ff" in text and "2023-11-14" in text
    first, second = document["runs"]
    assert (first["change"], second["change"]) == (None, "slower")
    assert second["change_us"] == pytest.approx(30e3) and second["commit"] == "c0ffee" * 7 and first["commit"] is None
    assert second["started_unix_s"] - first["started_unix_s"] == HOUR_S
    _, report = run(straggler_report, 0, 1e5, commit="abc")
    again = from_contract(to_contract(report))
    assert (again.run.started_unix_s, again.run.commit) == (1.7e9, "abc")
    assert when_words(None) == when_words(1e30) == when_words(-1.0) == "not recorded"


def test_every_run_has_a_line_and_its_numbers_and_redaction_hides_its_name(ddprof, sample, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for name in ("healthy", "slow_gpu"):
        shutil.copytree(f"{sample(name)}/traces", folder / name)
    code, out, _ = ddprof("history", str(folder))
    assert code == 0 and "healthy" in out and "slow_gpu" in out and "2 runs" in out
    code, out, _ = ddprof("history", str(folder), "--redact")
    assert code == 0 and "slow_gpu" not in out
    code, out, _ = ddprof("history", str(folder), "--format", "json")
    runs = {run["name"]: run for run in json.loads(out)["runs"]}
    assert code == 0 and set(runs) == {"healthy", "slow_gpu"}
    for name, run in runs.items():
        told = json.loads(ddprof("analyze", str(folder / name), "--format", "json")[1])
        assert run["step_us"] == pytest.approx(told["steps"]["wall_us"], abs=0.01)
        assert sum(run["shares"].values()) == pytest.approx(1, abs=1e-3) and run["mfu"] == told["efficiency"]["mfu"]


@pytest.mark.parametrize("what", ["absent", "empty", "file"])
def test_what_holds_no_run_is_one_line(ddprof, tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no trace")
    code, out, err = ddprof("history", str(path))
    assert (code, out, len(err.splitlines())) == (4, "", 1) and str(path) in err


def test_bars_and_rows_are_the_runs_by_date_with_the_change_marked(straggler_report: Report) -> None:
    made = (run(straggler_report, n, ms * 1e3, name=f"run-{n}", paths=()) for n, ms in ((2, 130), (0, 100), (1, 100)))
    runs = tuple(OpenRun(report) for _, report in made)
    view = View(runs[0], {}, runs)
    (exhibit,) = exhibits(view)
    assert isinstance(exhibit.chart, Stacked) and list(exhibit.chart.labels) == ["run-0", "run-1", "▲ run-2"]
    assert [row[0] for row in exhibit.sheet.rows] == ["run-0", "run-1", "run-2"]
    assert "slower by" in exhibit.sheet.rows[2][5] and exhibit.sheet.rows[1][5] == ""
    assert exhibit.reading.startswith("3 runs, 1 change of the step") and not page_at("/history").is_empty(view)


def test_one_run_has_no_history_and_runs_without_steps_are_said_to_have_none(straggler_report: Report) -> None:
    only = OpenRun(straggler_report)
    view = View(only, {}, (only,))
    assert list(exhibits(view)) == [] and page_at("/history").is_empty(view)
    assert "ddprof serve FOLDER" in str(page_at("/history").content(view))
    empty = OpenRun(replace(straggler_report, steps=replace(straggler_report.steps, wall_us=float("nan"))))
    (exhibit,) = exhibits(View(empty, {}, (empty, empty)))
    assert exhibit.reading == "No run has a measured step."

"""Open runs: a saved report holds no events, traces hold the job of the report."""

import json
from pathlib import Path

import pytest

from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.errors import NoUsableInput
from ddprof.report.json.contract import to_contract


def test_saved_reports_hold_no_events_and_a_session_the_job_of_the_report(tmp_path: Path, straggler: OpenRun) -> None:
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(straggler.report)))
    opened = load([str(file)])[0]
    assert not opened.has_traces and opened.report.verdict == straggler.report.verdict
    with pytest.raises(NoUsableInput, match="holds no events"):
        _ = opened.job
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoUsableInput):
        load([str(tmp_path / "empty")])
    report = straggler.report
    assert straggler.job.rank_ids == report.run.ranks
    assert straggler.job.step_ns / 1e3 == pytest.approx(report.steps.wall_us)
    for name in ("instances", "members", "ledger", "blame"):
        assert len(getattr(straggler.job, name)) == len(report.tables[name])

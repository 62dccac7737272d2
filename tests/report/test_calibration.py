"""Verified predictions: what is kept, what is quoted, and what is never counted."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from ddprof.errors import UsageError
from ddprof.report import calibration
from ddprof.report.calibration import Record
from ddprof.report.json.contract import from_contract, to_contract
from ddprof.report.model import Calibration, Report
from ddprof.report.text import render_text
from ddprof.significance import mean_interval


def record(outcome: str = "inside", at: str = "2026-01-01T00:00:00Z", finding: str = "input.straggler") -> Record:
    """A record of a verified prediction."""
    named, times_us = (("num_workers=4",), ("loader_workers",), (finding,)), (100.0, 60.0, 50.0, 70.0, 61.0, 59.0, 63.0)
    return Record(at, "a", "b", *named, *times_us, (40.0, 40.0), outcome)


def test_the_range_judges_the_outcome_first() -> None:
    around = ((None, 70.0), ((50.0, 99.0), 70.0), ((50.0, 110.0), 70.0), ((50.0, 110.0), 100.0))  # and the range's end
    told = [calibration.outcome(60.0, of, 50.0, high, 100.0) for of, high in around]
    assert told == ["inside", "inside", "unclear", "inside"]
    measured = (None, (68.0, 82.0), (72.0, 78.0))  # intervals around 75
    assert [calibration.outcome(75.0, of, 50.0, 70.0, 100.0) for of in measured] == ["outside", "noise", "outside"]


def test_records_come_back_and_damage_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "deep" / calibration.FILE
    calibration.append(file, record())
    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"schema": "ddprof.calibration/1"}\nnot json\n[]\n')
    calibration.append(file, record("outside", "2026-01-02T00:00:00Z"))
    assert calibration.read(file) == [record(), record("outside", "2026-01-02T00:00:00Z")]
    assert calibration.read(tmp_path / "none") == []


@pytest.mark.parametrize("value", ["null", "[]", "{}", '"x"', "[[]]", "true", "NaN", "1e999", "9" * 400, "[" * 100_000])
def test_a_field_of_another_type_makes_no_record(tmp_path: Path, value: str) -> None:
    whole = {"schema": calibration.SCHEMA, **asdict(record())}
    lines = [json.dumps(whole | {name: "@"}).replace('"@"', value) for name in whole]
    (tmp_path / "c.jsonl").write_text("\n".join([*lines, json.dumps(whole)]))
    *others, last = calibration.distinct(calibration.read(tmp_path / "c.jsonl"))
    assert last == record() and all(isinstance(s, str) for each in others for s in (*each.key[:3], *each.findings))


def test_pipes_and_links_are_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for name in ("pipe", "link"):
        assert calibration.read(tmp_path / name) == []
        with pytest.raises(UsageError, match="not written"):
            calibration.append(tmp_path / name, record())
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_report_quotes_what_is_known_of_undisturbed_runs(straggler_report: Report) -> None:
    assert mean_interval([1.0, 2.0]) is None
    low, high = mean_interval([9.0, 10.0, 11.0, 10.0]) or (0.0, 0.0)
    assert 9.0 < low < 10.0 < high < 11.0
    records = [record(), record("outside"), record("noise"), record("disturbed"), record(finding="host.gc")]
    assert calibration.like(records, ("input.straggler",), ()) == Calibration(1, 3)
    assert calibration.like(records, (), ("loader_workers",)) == Calibration(2, 4)
    quoted = calibration.calibrated(straggler_report, [record()] * 12 + [record("outside")] * 2)
    assert "12 of 14 similar predictions were within range" in " ".join(render_text(quoted).split())
    document = to_contract(quoted)
    known = {f["id"]: f["calibration"] for f in document["findings"]}
    assert known == {"input.straggler": {"inside": 12, "predictions": 14}, "comm.bandwidth_bound": None}
    assert from_contract(json.loads(json.dumps(document))).calibration == quoted.calibration


def test_the_users_file_is_stated_and_a_record_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPROF_DATA_HOME", str(tmp_path / "data"))
    for folder in (tmp_path / "data", tmp_path / "run"):
        calibration.append(folder / calibration.FILE, record())
    assert calibration.of_run([tmp_path]) == [] and len(calibration.of_run([tmp_path / "run"])) == 1
    assert len(calibration.on_this_machine([tmp_path / "run"])) == 1
    assert calibration.user_file({"XDG_DATA_HOME": "/x"}) == Path("/x/ddprof/calibration.jsonl")
    assert calibration.user_file({"DDPROF_DATA_HOME": "/y", "XDG_DATA_HOME": "/x"}) == Path("/y/calibration.jsonl")

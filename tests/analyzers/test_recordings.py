"""Kept recordings of a GPU: the planted fault is named, and its measured gain is within the predicted range."""

import json
from pathlib import Path

import pytest
from labelled_runs import only_run, serious

FOLDER = Path(__file__).parent / "recordings"
TRUTHS = {file.parent.name: json.loads(file.read_text("utf-8")) for file in sorted(FOLDER.glob("*/truth.json"))}
MAX_BYTES = 400_000  # of all


@pytest.mark.parametrize("name", list(TRUTHS))
def test_the_planted_fault_is_named_and_priced(name: str) -> None:
    truth, report = TRUTHS[name], only_run(FOLDER / name / "run").report
    said = serious(report)
    assert said.get(truth["finding"]) == tuple(truth["ranks"])
    assert set(said) <= {truth["finding"], *truth["also"]}
    assert report.steps.unprofiled_us == pytest.approx(truth["step_us"], rel=0.02)
    (finding,) = [each for each in report.findings if each.id == truth["finding"]]
    gain = finding.unprofiled_us
    assert gain is not None and gain.low <= truth["step_us"] - truth["fixed_step_us"] <= gain.high
    assert report.replay.error is not None and report.replay.error < 0.01


def test_they_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < MAX_BYTES

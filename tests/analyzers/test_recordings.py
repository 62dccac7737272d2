"""Kept recordings of a GPU: the planted fault is named, and its measured gain is within the predicted range."""

import json
from pathlib import Path

import pytest
from labelled_runs import only_run, serious

FOLDER = Path(__file__).parent / "recordings"
TRUTHS = {file.parent.name: json.loads(file.read_text("utf-8")) for file in sorted(FOLDER.glob("*/truth.json"))}
MAX_BYTES = 900_000  # of all


@pytest.mark.parametrize("name", list(TRUTHS))
def test_the_planted_fault_is_named_and_priced(name: str) -> None:
    """Nothing is named where a fault costs nothing."""
    truth, report = TRUTHS[name], only_run(FOLDER / name / "run").report
    said, planted = serious(report), {truth["finding"]} - {None}
    assert planted <= set(said) <= {*planted, *truth["also"]}
    assert report.steps.unprofiled_us == pytest.approx(truth["step_us"], rel=0.05)
    for finding in (each for each in report.findings if each.id in planted):
        gain = finding.unprofiled_us
        assert finding.ranks == tuple(truth["ranks"])
        assert gain is not None and gain.low <= truth["step_us"] - truth["fixed_step_us"] <= gain.high
    assert report.replay.error is not None and report.replay.error < 0.01


def test_they_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < MAX_BYTES

"""Content for every tracker in these tests, and tests skipped where a tracker's library is missing."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.report.model import Report
from ddprof.slices.trackers.content import Content, of_report
from ddprof.slices.trackers.destination import Target
from ddprof.slices.trackers.sending import Sending


@pytest.fixture
def content(tmp_path: Path, straggler_report: Report) -> Content:
    """The verdict of the synthetic run, with a file."""
    html = tmp_path / "r.html"
    html.write_text("<!doctype html><title>the report</title>", encoding="utf-8")
    return of_report(straggler_report, html, "/runs/mnist")


@pytest.fixture
def send() -> Callable[..., tuple[list[str], list[str]]]:
    """A call that sends contents with their steps to a tracker; the trackers that failed and what was said."""

    def sent(target: Target, name: str, *contents: tuple[Content, int], live: bool = False) -> Any:
        told: list[str] = []
        sending = Sending([target], name, told.append, live)
        for content, step in contents:
            sending.log(content, step)
        sending.close()
        return sending.failed, told

    return sent


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No tracker of whoever runs the tests, and nothing of theirs is written to."""
    for name in ("WANDB_RUN_ID", "WANDB_PROJECT", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("COMET_EXPERIMENT_KEY", "COMET_PROJECT_NAME", "COMET_API_KEY", "AIP_TENSORBOARD_LOG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    # A folder of other tests on sys.path is called tensorflow, which TensorBoard would take for the library.
    monkeypatch.setitem(sys.modules, "tensorflow", None)

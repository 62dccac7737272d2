"""Settings that reach every rank: their way through the environment, and which ranks are chosen."""

import os

import pytest

from ddprof.capture.files.config import CaptureConfig, rank_selected

SENT = CaptureConfig("/r").as_path()
CHOSEN = {"all": range(8), "0,7": [0, 7], "sample:3": [0, 4, 7], "sample:1": [0], "sample:99": range(8)}


@pytest.mark.parametrize("spec", CHOSEN)
def test_rank_selection(spec: str) -> None:
    assert [rank for rank in range(8) if rank_selected(spec, rank, 8)] == [*CHOSEN[spec]]


@pytest.mark.parametrize("spec", ["sample:0", "some", "1,x", ""])
def test_rank_selection_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ValueError):
        rank_selected(spec, 0, 8)


@pytest.mark.parametrize(
    "run_dir", ["/r", "/a b/sample:8/%3A", "/run_dir=/x/run_dir=/y", "/é/☃/\n", os.fsdecode(b"/latin\xe9/1")]
)
def test_settings_survive_the_way_through_pythonpath(run_dir: str) -> None:
    config = CaptureConfig(run_dir=run_dir, skip_steps=9, ranks="sample:32", record_shapes=False, clock="a/b=c:d")
    text = config.as_path()
    assert not set(text) & set(":\n ☃") and CaptureConfig.from_path(text) == config


def test_fixes_travel_with_the_settings_and_leave_no_trace_where_there_are_none() -> None:
    config = CaptureConfig("/r", apply='[[{"num_workers":4},"a b/tr:ain.py:57","x"]]')
    text = config.as_path()
    assert CaptureConfig.from_path(text) == config and "/apply=" in text and ":" not in text
    assert "apply" not in SENT and "end_after" not in SENT
    ended = CaptureConfig("/r", end_after=55)
    assert CaptureConfig.from_path(ended.as_path()) == ended


@pytest.mark.parametrize("text", ["", "run_dir=/r", SENT[3:], SENT.replace("=5", "=x"), SENT.replace("/run_dir", "")])
def test_damaged_settings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="settings of ddprof run are damaged"):
        CaptureConfig.from_path(text)

"""Event files, read back by TensorBoard's own reader."""

from pathlib import Path

import pytest

from ddprof.slices.trackers.content import Content
from ddprof.slices.trackers.target import Target
from tests.slices.trackers.test_destination import logged

pytest.importorskip("tensorboard", reason="tensorboard is not installed")


def test_numbers_sentences_and_the_file(content: Content, send, tmp_path: Path) -> None:
    live = Content({"ddprof/live/step_ms": 90.0})
    failed, told = send(Target("tensorboard", str(tmp_path / "tb")), "mnist", (live, 10), (content, 20))
    folder = tmp_path / "tb" / "ddprof-mnist"
    assert failed == [] and len(told) == 1 and f"tensorboard --logdir {tmp_path / 'tb'}" in told[0]
    read = logged(folder)
    assert [(e.step, e.value) for e in read.Scalars("ddprof/live/step_ms")] == [(10, 90.0)]
    for key, value in content.numbers.items():
        assert [(e.step, e.value) for e in read.Scalars(key)] == [(20, pytest.approx(value))]
    (verdict,) = read.Tensors("ddprof/verdict")
    assert verdict.tensor_proto.string_val[0].decode() == content.words["ddprof/verdict"]
    assert read.Tensors("ddprof/report")[0].tensor_proto.string_val[0].decode() == content.markdown
    assert (folder / "ddprof-report.html").read_text() == "<!doctype html><title>the report</title>"


def test_it_writes_for_vertex_ai(content: Content, send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIP_TENSORBOARD_LOG_DIR", str(tmp_path / "vertex"))
    for place, folder in (("", tmp_path / "vertex"), (str(tmp_path / "own"), tmp_path / "own")):
        assert send(Target("tensorboard", place), "mnist", (content, 0))[0] == []
        assert list(folder.glob("ddprof-mnist/events.out.tfevents.*"))

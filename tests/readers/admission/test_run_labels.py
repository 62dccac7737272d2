"""A run is called by the folder that tells which one it is."""

from __future__ import annotations

from pathlib import Path

from reading import rank_file

from ddprof.readers import discover
from ddprof.readers.admission.run_labels import labels


def _named(*paths: Path) -> list[str]:
    return [label for label, _ in discover(paths).runs]


def _recorded(folder: Path) -> Path:
    for rank in range(2):
        rank_file(folder / f"rank{rank}.json", rank)
    return folder


def test_a_folder_of_traces_is_called_by_its_job(tmp_path: Path) -> None:
    mnist, gpt = _recorded(tmp_path / "mnist" / "traces"), _recorded(tmp_path / "gpt" / "profiler_logs")
    assert _named(mnist) == ["mnist"] and _named(mnist.parent) == ["mnist"]
    assert _named(mnist, gpt) == ["mnist", "gpt"] and sorted(_named(tmp_path)) == ["gpt", "mnist"]


def test_runs_that_would_be_called_alike_keep_their_folders(tmp_path: Path) -> None:
    assert labels(["", "logs"], ["/traces", "/logs"]) == ["traces", "logs"]  # no part tells: the last is the name
    _recorded(tmp_path / "mnist" / "traces"), _recorded(tmp_path / "mnist" / "profile")
    assert sorted(_named(tmp_path)) == ["mnist/profile", "mnist/traces"]
    assert sorted(_named(tmp_path / "mnist")) == ["profile", "traces"]


def test_any_other_word_tells_a_run_and_the_name_of_a_file_where_there_is_one(tmp_path: Path) -> None:
    for name in ("trace_2", "traces_amp", "tracer-bullet"):
        assert _named(_recorded(tmp_path / name)) == [name]
    rank_file(tmp_path / "mnist" / "trace.json", 0)
    assert _named(tmp_path / "mnist") == _named(tmp_path / "mnist" / "trace.json") == ["mnist"]
    rank_file(tmp_path / "logs" / "amp.json", 0)
    assert _named(tmp_path / "logs") == ["amp"]

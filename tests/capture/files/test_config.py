"""Settings that reach every rank: which ranks are chosen, and keys of a newer version."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddprof.capture.files.config import CaptureConfig, rank_selected


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ("all", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("0,7", [0, 7]),
        ("sample:3", [0, 4, 7]),
        ("sample:1", [0]),
        ("sample:99", list(range(8))),
    ],
)
def test_rank_selection(spec: str, chosen: list[int]) -> None:
    assert [rank for rank in range(8) if rank_selected(spec, rank, 8)] == chosen


@pytest.mark.parametrize("spec", ["sample:0", "some", "1,x", ""])
def test_rank_selection_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ValueError):
        rank_selected(spec, 0, 8)


def test_config_survives_unknown_keys(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = CaptureConfig(run_dir="/r", package_dir="/p", version="1", skip_steps=9)
    config.save(path)
    path.write_text(path.read_text().replace("{", '{"of_a_newer_version": 1,', 1))
    assert CaptureConfig.load(path) == config

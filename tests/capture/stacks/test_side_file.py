"""The side file: appended lines, and where they end."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from ddprof.capture.stacks import side_file
from ddprof.capture.stacks.side_file import StackFile


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    file = StackFile(tmp_path / "a.stacks.jsonl", {"rank": 3})
    file.write({"kind": "frames", "frames": []})
    assert [line["kind"] for line in lines(file.path)] == ["begin", "frames"]
    assert lines(file.path)[0]["rank"] == 3
    file.close()
    file.write({"kind": "end"})
    assert len(lines(file.path)) == 2


def test_the_file_is_bounded_and_single_samples_before_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_file, "MAX_BYTES", 20_000)
    monkeypatch.setattr(side_file, "MAX_SAMPLE_BYTES", 5_000)
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    for _ in range(1_000):
        if file.holds_samples:
            file.write({"kind": "samples", "samples": [1, 2, 3]})
        file.write({"kind": "counts", "counts": [4, 5, 6]})
    kinds = [line["kind"] for line in lines(file.path)]
    assert file.path.stat().st_size <= 20_000 and file.full
    assert 50 < kinds.count("samples") < 200 < kinds.count("counts")


def test_a_full_disk_and_a_write_that_fails_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    monkeypatch.setattr(side_file, "free_bytes", lambda folder: 1 << 20)
    file.check_disk()
    file.write({"kind": "counts"})
    assert file.full == "1024 KiB free on the disk of the run folder" and len(lines(file.path)) == 1
    file = StackFile(tmp_path / "a.stacks.jsonl", {})

    monkeypatch.setattr(os, "write", Mock(side_effect=OSError(28, "No space left on device")))
    file.write({"kind": "counts"})
    monkeypatch.undo()
    file.write({"kind": "counts"})
    assert file.full == "No space left on device" and len(lines(file.path)) == 1

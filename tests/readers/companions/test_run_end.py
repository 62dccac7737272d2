"""How a job ended, as the manifest of its run folder says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddprof.readers.companions.run_end import RunEnd, run_end


def test_the_exit_code_and_the_hang_are_those_of_the_manifest(tmp_path: Path) -> None:
    assert run_end(str(tmp_path)) is None
    (tmp_path / "manifest.json").write_text(json.dumps({"exit_code": 134, "hang": {"seen_ns": 5}, "host": "a"}))
    assert run_end(str(tmp_path)) == RunEnd(134, {"seen_ns": 5})


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00"])
def test_a_damaged_manifest_says_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert run_end(str(tmp_path)) in (None, RunEnd())

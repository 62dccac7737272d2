"""`ddprof history`: runs of a folder, and one line with exit code 4 for what is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(repo_root: Path, tmp_path: Path) -> Path:
    for name in ("healthy", "slow_gpu"):
        shutil.copytree(repo_root / "sample_traces" / name / "traces", tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_every_run_of_a_folder_has_a_line(ddprof: Invoke, folder: Path) -> None:
    code, out, _ = ddprof("history", str(folder), "--no-cache")
    assert code == 0
    assert "healthy" in out and "slow_gpu" in out and "2 runs" in out


def test_json_has_the_numbers_of_the_reports(ddprof: Invoke, folder: Path) -> None:
    code, out, _ = ddprof("history", str(folder), "--format", "json", "--no-cache")
    assert code == 0
    runs = {run["name"]: run for run in json.loads(out)["runs"]}
    assert set(runs) == {"healthy", "slow_gpu"}
    for name, run in runs.items():
        told = json.loads(ddprof("analyze", str(folder / name), "--format", "json", "--no-cache")[1])
        assert run["step_us"] == pytest.approx(told["steps"]["wall_us"], abs=0.01)
        assert sum(run["shares"].values()) == pytest.approx(1, abs=1e-3)
        assert run["mfu"] == told["efficiency"]["mfu"]


def test_redaction_hides_the_names_of_runs(ddprof: Invoke, folder: Path) -> None:
    code, out, _ = ddprof("history", str(folder), "--redact", "--no-cache")
    assert code == 0 and "slow_gpu" not in out


@pytest.mark.parametrize("what", ["absent", "empty", "file"])
def test_what_holds_no_run_is_one_line(ddprof: Invoke, tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    if what == "file":
        path.write_text("no trace")
    code, out, err = ddprof("history", str(path))
    assert (code, out, len(err.splitlines())) == (4, "", 1)
    assert str(path) in err

"""One folder for all nodes of a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddprof.capture.files.layout import host_label
from ddprof.capture.launcher import run_folder


def test_nodes_of_a_slurm_job_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    first = run_folder.create(tmp_path, "train", 0.0)
    second = run_folder.create(tmp_path, "train", 5.0)
    assert first.path == second.path == (tmp_path / "train-slurm77.0").resolve()
    assert first.manifest.name == "manifest.json"
    assert second.manifest.name == f"manifest.{host_label()}.{os.getpid()}.json"

"""The body of the GitHub Action: reports always, then the gates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _act(root: Path, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    binary = folder / "bin"
    binary.mkdir()
    program = binary / "ddprof"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ddprof.cli.main "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{binary}:{os.environ['PATH']}",
        "REPORT": str(folder / "report.html"),
        **inputs,
    }
    environment["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
    command = ["bash", str(root / ".ci" / "action")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_a_failed_gate_leaves_its_evidence(repo_root: Path, tmp_path: Path, saved: Path) -> None:
    done = _act(repo_root, tmp_path, RUN=str(saved), FAIL_ON="host.*\nwarning\n")
    assert done.returncode == 3, done.stderr
    assert "gate failed: critical input.straggler" in done.stderr
    assert "STRAGGLER-BOUND" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "report.json").read_text().startswith("{")


@pytest.mark.parametrize("limit", ["", "5%"])
def test_an_unchanged_run_passes_against_its_baseline(repo_root: Path, tmp_path: Path, saved: Path, limit: str) -> None:
    done = _act(repo_root, tmp_path, RUN=str(saved), BASELINE=str(saved), MAX_REGRESSION=limit, FAIL_ON="warning")
    assert done.returncode == 0, done.stderr
    assert "No change of the step" in (tmp_path / "summary.md").read_text()
    assert 'id="compare"' in (tmp_path / "report.html").read_text()

"""Real pairs of runs: the fault is found with its rank, and is gone with its fix."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
ENDING_S = 60
REPOSITORY = Path(__file__).resolve().parents[2]


def bench(folder: Path, *arguments: str, timeout_s: int) -> tuple[subprocess.CompletedProcess[str], dict]:
    results = folder / "results.json"
    line = [sys.executable, "-m", "ddprof.cli.main", "bench", "workloads", "--out", str(folder), "--results"]
    with subprocess.Popen(
        [*line, str(results), *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # a kill would leave its jobs running for ever
            process.wait(ENDING_S)
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    return done, json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}


@pytest.mark.torch
def test_one_pair(tmp_path: Path) -> None:
    done, told = bench(tmp_path, "--only", "mnist_ddp.loader-straggler.storage", timeout_s=300)
    assert done.returncode == 0, done.stderr
    (pair,) = told["pairs"]
    assert pair["found"] and pair["gone"]
    assert pair["gain_shares"][0] > 0 and pair["gain_shares"][1] > 0
    assert pair["replay_error"] < 0.05
    assert "| mnist_ddp, loader-straggler, storage | input.straggler [1] | right" in done.stdout


@pytest.mark.slow
@pytest.mark.torch
def test_the_quick_matrix(tmp_path: Path) -> None:
    done, told = bench(tmp_path, "--quick", timeout_s=1800)
    assert [pair["pair"] for pair in told["pairs"] if not pair["found"]] == [], done.stderr
    assert told["summary"]["sign_right"] == 1.0


@pytest.mark.slow
@pytest.mark.torch
def test_faults_of_a_real_pipeline(tmp_path: Path) -> None:
    """What they cost depends on how many cores the two stages have, so only causes and the replay are judged."""
    wanted = ("pipeline_1f1b.stage-imbalance.even", "pipeline_1f1b.few-microbatches.microbatches")
    done, told = bench(tmp_path, *(part for name in wanted for part in ("--only", name)), timeout_s=1800)
    assert [pair["said"] for pair in told["pairs"] if not pair["found"]] == [], done.stderr
    assert {pair["finding"]: pair["ranks"] for pair in told["pairs"]} == {
        "pipeline.imbalance": [1],
        "pipeline.bubble": [],
    }
    assert told["summary"]["healthy_accused"] == []
    assert all(pair["replay_error"] < 0.05 for pair in told["pairs"])

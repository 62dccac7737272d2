"""Pairs of runs: the fault is found with its rank, and is gone with its fix. Recorded ones in the fast tests."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Fault, Model
from benchmarks.oracle.write import write
from benchmarks.workload_pairs import __main__ as cli
from benchmarks.workload_pairs.execute import MEASURED, command
from benchmarks.workload_pairs.pairs import pairs
from benchmarks.workload_pairs.turns import Turns

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
REPOSITORY = Path(__file__).resolve().parents[2]
PAIR = "mnist_ddp.loader-straggler.storage"


def recorded(folder: Path, step_ms: float, *faults: Fault) -> None:
    """The folder of a job that has run: traces of two ranks and what it measured of itself."""
    model = Model(layers=2, params_per_layer=3_000_000)
    write(simulate(small_run(*faults, ranks=2, steps=4, model=model, loader_us=9_000.0)), folder)
    (folder / MEASURED).write_text(json.dumps(Turns(step_ms, [step_ms]).as_dict()))


def test_a_recorded_pair_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pair,) = pairs([PAIR])
    recorded(tmp_path / "0" / pair.faulted.name, 90.0, fault("input.straggler", 8.0, 1))
    recorded(tmp_path / "0" / pair.fixed.name, 50.0)
    monkeypatch.setattr(cli, "_device", lambda: "cpu")
    results = tmp_path / "results.json"
    words = ["--only", PAIR, "--reuse", "--out", str(tmp_path), "--results", str(results)]
    done = CliRunner().invoke(cli.command, words)
    assert done.exit_code == 0, done.output
    judge_pair(json.loads(results.read_text(encoding="utf-8")), done.stdout)


def test_jobs_are_started_with_their_fault_and_fix(tmp_path: Path) -> None:
    (pair,) = pairs([PAIR])
    faulted, fixed = (" ".join(command(job, tmp_path)) for job in (pair.faulted, pair.fixed))
    assert "--fault loader-straggler" in faulted and "--fix" not in faulted
    assert "--fault loader-straggler --fix storage" in fixed and f"ddprof.cli.main run --run-dir {tmp_path}" in fixed


def judge_pair(told: dict[str, Any], said: str) -> None:
    (pair,) = told["pairs"]
    assert pair["found"] and pair["gone"] and pair["gain_shares"][0] > 0 and pair["gain_shares"][1] > 0
    assert pair["replay_error"] < 0.05
    assert "| mnist_ddp, loader-straggler, storage | input.straggler [1] | right" in said


def bench(folder: Path, *arguments: str) -> tuple[Any, str]:
    """Judgements that the program writes of the pairs, which are all found, and what it prints."""
    results = folder / "results.json"
    words = ["--out", str(folder), "--results", str(results), *arguments]
    line = [sys.executable, "-m", "benchmarks.workload_pairs", *words]
    done = subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    told = json.loads(results.read_text(encoding="utf-8"))
    assert [(pair["pair"], pair["said"]) for pair in told["pairs"] if not pair["found"]] == [], done.stderr
    return told, done.stdout


@pytest.mark.slow
@pytest.mark.torch
def test_the_quick_matrix(tmp_path: Path) -> None:
    told, said = bench(tmp_path, "--quick")
    assert told["summary"]["sign_right"] == 1.0
    judge_pair({"pairs": [pair for pair in told["pairs"] if "loader-straggler" in pair["pair"]]}, said)


@pytest.mark.slow
@pytest.mark.torch
def test_faults_of_a_real_pipeline(tmp_path: Path) -> None:
    """Their cost depends on how many cores the two stages have, so only causes and the replay are judged."""
    wanted = ("pipeline_1f1b.stage-imbalance.even", "pipeline_1f1b.few-microbatches.microbatches")
    told, _ = bench(tmp_path, *(f"--only={name}" for name in wanted))
    ranks = {pair["finding"]: pair["ranks"] for pair in told["pairs"]}
    assert ranks == {"pipeline.imbalance": [1], "pipeline.bubble": []} and told["summary"]["healthy_accused"] == []
    assert all(pair["replay_error"] < 0.05 for pair in told["pairs"])

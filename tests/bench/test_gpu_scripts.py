"""Scripts of benchmarks/gpu_scripts and gpu_check.py: each is in the table, its expected findings exist, it can run."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_scripts.faults import FAULTS, runs, twins
from benchmarks.gpu_scripts.judge import Run, judge, lines
from ddprof import finding_ids

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
JOBS = {path.stem: path.read_text() for path in (BENCHMARKS / "gpu_scripts" / "jobs").glob("*.py")}
ABOUT = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in JOBS.items()}
IDS = {value for name, value in vars(finding_ids).items() if name.isupper()}
UNSAID = {"severity": "warning", "recoverable_untraced_us": None}


def _run(ms: float, *findings: tuple[str, list[int]]) -> Run:
    gain = {"recoverable_us": {"value": 5000.0, "low": 4000.0, "high": 6000.0}}
    told: list[dict[str, Any]] = [{"id": name, "ranks": ranks, **gain, **UNSAID} for name, ranks in findings]
    return Run(ms, {"run": {"ranks": [0, 1]}, "findings": told, "steps": {"wall_us": ms * 1e3}})


def test_every_script_compiles_and_says_what_switches_its_fault() -> None:
    for name, text in JOBS.items():
        compile(text, name, "exec")
        assert "FAULT=1" in ABOUT[name], name


def test_every_fault_has_a_script_its_mode_and_findings_that_exist() -> None:
    assert {name.split("-")[0] for name in FAULTS} == JOBS.keys() - {"turn"}
    for name, fault in FAULTS.items():
        script, *mode = name.split("-")
        assert all(word in ABOUT[script] for word in mode) and set(fault.ids) <= IDS, name
        assert set(twins(name)) <= set(runs()), name


def test_the_judge_asks_for_cause_ranks_and_gain_and_accuses_no_twin() -> None:
    link = ("comm.bandwidth_bound", [0, 1])
    runs = {"pair-save-1": _run(25.0, link, ("host.checkpoint", [0])), "pair-save-0": _run(20.0, link)}
    runs |= {f"pair-late-{n}": _run(20.0, (name, [1])) for n, name in ((1, "input.straggler"), (0, "straggler.host"))}
    judged = judge({**runs, "gpt-opt-1": _run(20.0, ("host.gc", [])), "gpt-logs-1": Run(None, None)})
    assert {each["fault"]: (each["verdict"], each["gain_right"]) for each in judged["rows"]} == {
        **{"pair-save": ("right", True), "pair-late": ("wrong", None), "gpt-opt": ("wrong", None)},
        "gpt-logs": ("not judged: no trace", None),
    }
    assert "pair-late-0 accuses [1]" in lines(judged)


@pytest.mark.torch
@pytest.mark.slow
def test_a_dry_run_of_gpu_check_on_a_cpu_passes_and_lists_what_was_not_run(tmp_path: Path) -> None:
    result = tmp_path / "gpu.json"
    for only in ("capture", "fault.item"):
        command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--steps", "12", "--only", only]
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run([*command, "--output", str(result)], check=True, timeout=900, env=hidden)
        outcomes = {check["name"]: check["outcome"] for check in json.loads(result.read_text())["checks"]}
        assert "failed" not in outcomes.values() and "not run" in outcomes.values(), outcomes

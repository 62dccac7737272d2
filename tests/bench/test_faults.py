"""The faults of the workloads: every one is switched somewhere, and takes as long as it says. Scripts of
benchmarks/gpu_scripts and gpu_check.py: each is in the table, its expected findings exist, it can run."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_scripts.faults import FAULTS, runs, twins
from benchmarks.gpu_scripts.judge import Run, judge, lines
from ddprof import finding_ids
from ddprof.workloads.arguments import Switches
from ddprof.workloads.catalogue import AS_SETTING, WORKLOADS

SOURCES = Path(__file__).resolve().parents[2] / "workloads"
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
JOBS = {path.stem: path.read_text() for path in (BENCHMARKS / "gpu_scripts" / "jobs").glob("*.py")}
ABOUT = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in JOBS.items()}
IDS = {value for name, value in vars(finding_ids).items() if name.isupper()}
UNSAID = {"severity": "warning", "recoverable_untraced_us": None}
OUTSIDE = {"shaped-link", "faster"}  # what slow_link.py does, around the job


def test_every_fault_and_every_fix_is_switched_by_name_in_a_script() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in SOURCES.glob("*.py") if file.name != "catalogue.py")
    faults = {name: fault for workload in WORKLOADS.values() for name, fault in workload.faults.items()}
    fixes = {fix for fault in faults.values() for fix in fault.fixes}
    assert {name for name in (*faults, *fixes) if f'"{name}"' not in text} - OUTSIDE == set()
    assert set(AS_SETTING) <= fixes


def test_an_amount_takes_the_time_of_the_fault() -> None:
    amounts = pytest.importorskip("ddprof.workloads.amounts", reason="torch is not installed")
    now, done = [0.0], list[int]()

    def work(number: int) -> None:
        done.append(number)
        now[0] += 0.004 if len(done) > 1 else 0.1  # the first call is a cold one

    amount = amounts.Amount(0.1, SimpleNamespace(device=amounts.torch.device("cpu")))
    amount.clock = lambda: now[0]
    amount.of(work)
    assert done[amounts.CALIBRATION_CALLS :] == list(range(25))
    before = now[0]
    amount.of(work)
    assert now[0] - before == pytest.approx(0.1)


@pytest.mark.parametrize(("fault", "shares"), [("uneven-shards", (0.5, 1.5)), ("imbalance", None)])
def test_the_fix_of_unequal_work_is_the_mean(fault: str, shares: tuple[float, float] | None) -> None:
    """Uneven shards give the culprit more in every step, imbalance one rank or the other."""
    loading = pytest.importorskip("ddprof.workloads.loading", reason="torch is not installed")

    def work(fix: str, rank: int) -> list[float]:
        return [loading.share_of_work(Switches(fault, fix, 0.1, rank, 1), step, 2) for step in range(8)]

    first, second = work("", 0), work("", 1)
    assert [sum(pair) for pair in zip(first, second, strict=True)] == [2.0] * 8
    assert (first, second) == tuple([share] * 8 for share in shares) if shares else len(set(first)) == 2
    assert work("balanced", 0) == work("balanced", 1) == [1.0] * 8


def test_workers_are_those_of_the_command_line_before_those_of_the_fault() -> None:
    loading = pytest.importorskip("ddprof.workloads.loading", reason="torch is not installed")
    one_file, fixed = Switches("one-file", "", 0.1, 0, 1), Switches("few-workers", "workers", 0.1, 0, 1)
    assert [loading.workers(one_file, wanted) for wanted in (None, 0, 4)] == [2, 0, 4]
    assert loading.workers(fixed, None) == loading.ENOUGH_WORKERS
    assert loading.workers(Switches("none", "", 0.1, 0, 1), None) == 0


def _run(ms: float, *findings: tuple[str, list[int]]) -> Run:
    gain = {"recoverable_us": {"value": 5000.0, "low": 4000.0, "high": 6000.0}}
    told: list[dict[str, Any]] = [{"id": name, "ranks": ranks, **gain, **UNSAID} for name, ranks in findings]
    return Run(ms, {"run": {"ranks": [0, 1]}, "findings": told, "steps": {"wall_us": ms * 1e3}})


def test_every_script_compiles_and_says_its_switch_every_fault_has_a_script_its_mode_and_findings_that_exist() -> None:
    for name, text in JOBS.items():
        compile(text, name, "exec")
        assert "FAULT=1" in ABOUT[name], name
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

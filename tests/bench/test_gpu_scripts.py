"""Scripts of benchmarks/gpu_scripts: each compiles, has runs in the table, and its expected findings exist."""

import ast
from pathlib import Path
from typing import Any

from benchmarks.gpu_scripts.faults import FAULTS, runs, twins
from benchmarks.gpu_scripts.judge import Run, judge, lines
from ddprof import finding_ids

JOBS = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_scripts" / "jobs"
IDS = {value for name, value in vars(finding_ids).items() if name.isupper()}


def _run(ms: float, *findings: tuple[str, list[int]]) -> Run:
    gain = {"value": 5000.0, "low": 4000.0, "high": 6000.0}
    told: list[dict[str, Any]] = [
        {"id": name, "ranks": ranks, "severity": "warning", "recoverable_us": gain, "recoverable_untraced_us": None}
        for name, ranks in findings
    ]
    return Run(ms, {"run": {"ranks": [0, 1]}, "findings": told, "steps": {"wall_us": ms * 1e3}})


def test_every_script_compiles_and_says_what_switches_its_fault() -> None:
    for path in JOBS.glob("*.py"):
        compile(path.read_text(), str(path), "exec")
        assert "FAULT=1" in (ast.get_docstring(ast.parse(path.read_text())) or ""), path


def test_every_fault_has_a_script_its_mode_and_findings_that_exist() -> None:
    assert {name.split("-")[0] for name in FAULTS} == {path.stem for path in JOBS.glob("*.py")} - {"turn"}
    for name, fault in FAULTS.items():
        script, *mode = name.split("-")
        assert all(word in (ast.get_docstring(ast.parse((JOBS / f"{script}.py").read_text())) or "") for word in mode)
        assert set(fault.ids) <= IDS and set(twins(name)) <= set(runs()), name


def test_the_judge_asks_for_cause_ranks_and_gain_and_accuses_no_twin() -> None:
    link = ("comm.bandwidth_bound", [0, 1])
    judged = judge(
        {
            "pair-save-1": _run(25.0, link, ("host.checkpoint", [0])),
            "pair-save-0": _run(20.0, link),
            "pair-late-1": _run(20.0, ("input.straggler", [1])),
            "pair-late-0": _run(20.0, ("straggler.host", [1])),
            "gpt-opt-1": _run(20.0, ("host.gc", [])),
            "gpt-logs-1": Run(None, None),
        }
    )
    rows = {each["fault"]: (each["verdict"], each["gain_right"]) for each in judged["rows"]}
    assert rows == {
        "pair-save": ("right", True),
        "pair-late": ("wrong", None),
        "gpt-opt": ("wrong", None),
        "gpt-logs": ("not judged: no trace", None),
    }
    assert "pair-late-0 accuses [1]" in lines(judged)

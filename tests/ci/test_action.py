"""The GitHub Action, reports always, then the gates, and workflows: they give their scripts what these ask for."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
REAL = f'exec {sys.executable} -m ddprof.cli.main "$@"'


def _act(root: Path, folder: Path, program: str = REAL, **inputs: str) -> subprocess.CompletedProcess[str]:
    binary = folder / "bin" / "ddprof"
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\n{program}\n")
    binary.chmod(0o755)
    own = {"PATH": f"{binary.parent}:{os.environ['PATH']}", "REPORT": str(folder / "report.html")}
    environment = {**os.environ, **own, "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), **inputs}
    command = ["bash", str(root / ".ci" / "action")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_failed_gate_leaves_its_evidence(repo_root: Path, tmp_path: Path, saved: Path) -> None:
    done = _act(repo_root, tmp_path, RUN=str(saved), FAIL_ON="host.*\nwarning\n")
    assert done.returncode == 3, done.stderr
    assert "gate failed: critical input.straggler" in done.stderr
    assert "Largest saving: " in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "report.json").read_text().startswith("{")


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["", "5%"])
def test_an_unchanged_run_passes_against_its_baseline(repo_root: Path, tmp_path: Path, saved: Path, limit: str) -> None:
    done = _act(repo_root, tmp_path, RUN=str(saved), BASELINE=str(saved), MAX_REGRESSION=limit, FAIL_ON="warning")
    assert done.returncode == 0, done.stderr
    assert "No change of the step" in (tmp_path / "summary.md").read_text()
    assert 'id="compare"' in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("limit", ["", "5%"])
def test_a_baseline_is_compared_with_and_the_gates_are_its(repo_root: Path, tmp_path: Path, limit: str) -> None:
    inputs = {"RUN": "run", "BASELINE": "base", "MAX_REGRESSION": limit, "FAIL_ON": "warning", "REPORT": "r.html"}
    done = _act(repo_root, tmp_path, 'echo "$*" >&2', **inputs)
    regression = " --max-regression 5%" if limit else ""
    assert done.returncode == 0 and done.stderr.splitlines() == [
        *("analyze run -o r.json", "report run --against base -o r.html", "compare base r.json --format markdown"),
        *("analyze r.json --format markdown", f"compare base r.json --fail-on warning{regression}"),
    ]


def read(file: Path) -> dict[str, Any]:
    found = pytest.importorskip("yaml").safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_can_do_no_more_than_it_says(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert all(step.keys() & {"run", "uses"} for job in jobs.values() for step in job["steps"])
    assert {name for job in jobs.values() for name in job.get("needs", [])} <= set(jobs)


def test_nothing_is_published_without_a_signed_tag() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert {"signed", "wheels", "source", "inventory"} <= set(jobs["publish"]["needs"])
    writing = {name for name, job in jobs.items() if "write" in str(job.get("permissions", ""))}
    assert writing == {"publish", "release"}


def test_the_action_hands_every_input_to_its_script() -> None:
    action = read(ROOT / "action.yml")
    (step,) = [step for step in action["runs"]["steps"] if "env" in step]
    given = {name: re.findall(r"inputs\.([\w-]+)", value)[0] for name, value in step["env"].items()}
    assert set(given.values()) == set(action["inputs"])
    script = (ROOT / ".ci" / "action").read_text(encoding="utf-8")
    assert [name for name in given if not re.search(rf"\$\{{?{name}\b", script)] == []

"""Damaged inputs through the command line: a fixed draw of cases, and every input that failed before."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fuzzing.cases import Case, kept
from fuzzing.seeds import shared_folder

FOLDER = Path(__file__).resolve().parent
FIRST = 1_000
TIMEOUT_S = 900


def run(out: Path, *arguments: str) -> list[dict[str, Any]]:
    """Groups of failures. The harness runs in a process of its own: its workers are forked from one without threads."""
    line = [sys.executable, "-m", "fuzzing", "--processes=1", "--json", str(out), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "OMP_NUM_THREADS": "1"}
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": TIMEOUT_S}
    done = subprocess.run(line, cwd=out.parent, env=environment, text=True, check=False, **how)
    assert out.exists(), done.stdout
    groups: list[dict[str, Any]] = json.loads(out.read_text())
    return groups


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_the_first_cases(count: int, tmp_path: Path) -> None:
    assert run(tmp_path / "failures.json", "--everywhere", f"--count={count}", f"--seed={FIRST}") == []


@pytest.fixture(scope="module")  # so that what it costs is not one test's
def failed_again(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("kept") / "failures.json", "--kept")


def test_every_input_that_failed_before(failed_again: list[dict[str, Any]]) -> None:
    """In less time and memory than a new case may take."""
    assert failed_again == []


def test_kept_inputs_are_small_and_say_what_they_were() -> None:
    told = json.loads((FOLDER / "found" / "what.json").read_text(encoding="utf-8"))
    folders = {path.name: path for path in (FOLDER / "found").iterdir() if path.is_dir()}
    assert set(told) == set(folders)
    sizes = {name: sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for name, path in folders.items()}
    assert {name: size for name, size in sizes.items() if size > 20_000} == {}
    assert all(0 < len(entry["what"]) < 200 for entry in told.values())
    shared = shared_folder()
    is_there = shared is not None and (shared / "wild" / "broken").is_dir()
    assert any(case.seed.startswith("broken-") for case in kept()) == is_there


def test_a_name_makes_the_same_case_again() -> None:
    case = Case.named("on_devices/text_flip/17")
    assert case.name == "on_devices/text_flip/17"
    assert (case.tree, case.command) == (Case.named(case.name).tree, Case.named(case.name).command)
    assert case.tree != case.sound

"""The marker `ddprof_budget` in a real pytest session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report


@pytest.fixture
def project(tmp_path: Path, straggler_report: Report) -> Path:
    """A folder with a saved run in `run.json`."""
    (tmp_path / "run.json").write_text(json.dumps(to_contract(straggler_report), indent=1))
    return tmp_path


def _session(
    project: Path, marker: str, body: str = "assert True", alone: bool = True, switches: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Exit code and output of a session; `alone` without the other plugins of this environment, which take seconds."""
    text = f"import pytest\n\n\n@pytest.mark.ddprof_budget({marker})\ndef test_speed(ddprof_run):\n    {body}\n"
    (project / "test_speed.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "--strict-markers", "-q", *switches, "test_speed.py"]
    environment = dict(os.environ)
    if alone:
        command += ["-p", "ddprof.pytest_plugin"]
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


def test_a_run_within_its_budget_passes_and_is_at_hand(project: Path) -> None:
    body = "assert ddprof_run.ledger.loc[2, 'dataloader_us'] == 38_000"
    code, out = _session(
        project, "run='run.json', max_step_ms=120, max_exposed_comm=0.5, fail_on='host.*'", body, alone=False
    )
    assert code == 0, out


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("max_step_ms=90", "step is 100 ms"),
        ("max_exposed_comm=0.1", "exposed_comm is 30 %"),
        ("fail_on=['warning']", "critical input.straggler"),
    ],
)
def test_a_run_over_budget_fails_with_the_verdict(project: Path, budget: str, words: str) -> None:
    code, out = _session(project, f"run='run.json', {budget}")
    assert code == 1
    assert words in out
    assert "The loader of rank 2 is late" in out


@pytest.mark.parametrize("marker", ["", "run='a', run_fixture='b'", "run='run.json', max_steps=3", "'run.json'"])
def test_a_marker_that_makes_no_sense_is_an_error(project: Path, marker: str) -> None:
    code, out = _session(project, marker)
    assert code != 0
    assert "ddprof_budget" in out


def test_a_run_that_is_not_there_fails_in_one_line(project: Path) -> None:
    code, out = _session(project, "run='absent'")
    assert code == 1
    assert "absent" in out
    assert "Traceback" not in out


def test_a_run_is_held_against_the_baseline_that_is_kept_with_the_tests(project: Path) -> None:
    marker = "run='run.json', baseline='baselines/small.json', max_regression='5%', fail_on='warning'"
    code, out = _session(project, marker)
    assert code == 1 and "no such baseline" in out
    code, out = _session(project, marker, switches=("--ddprof-update-baselines",))
    assert code == 0 and (project / "baselines" / "small.json").is_file(), out
    code, out = _session(project, marker)
    assert code == 0, out  # the finding is known: only what is new fails

    document = json.loads((project / "run.json").read_text())
    for span in ("wall_us", "per_step_us"):
        value = document["steps"][span]
        document["steps"][span] = [2 * us for us in value] if isinstance(value, list) else 2 * value
    (project / "run.json").write_text(json.dumps(document))
    code, out = _session(project, marker)
    assert code == 1 and "slower, allowed is 5%" in out

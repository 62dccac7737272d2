"""The marker `ddprof_budget` in a pytest session: in this process, and once in one of its own with all plugins but
pytest-randomly, which imports what is installed that has a seed: six seconds of a CPU with DeepSpeed."""

import json
from pathlib import Path

import pytest

import ddprof.api  # noqa: F401 - imported here once, and not by each session anew
from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester, straggler_report: Report) -> pytest.Pytester:
    """A folder with a saved run in `run.json`."""
    (pytester.path / "run.json").write_text(json.dumps(to_contract(straggler_report), indent=1))
    return pytester


def _written(project: pytest.Pytester, marker: str, body: str = "assert True") -> list[str]:
    text = f"import pytest\n\n\n@pytest.mark.ddprof_budget({marker})\ndef test_speed(ddprof_run):\n    {body}\n"
    (project.path / "test_speed.py").write_text(text)
    return ["--strict-markers", "-q", "test_speed.py"]


def _session(project: pytest.Pytester, marker: str, *switches: str) -> tuple[int, str]:
    """Exit code and output of a session without the other plugins of this environment, which take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        words = ["-p", "ddprof.pytest_plugin", *switches, *_written(project, marker)]
        done = project.runpytest_inprocess(*words)
    return int(done.ret), done.stdout.str()


def test_a_run_within_its_budget_passes_and_is_at_hand(project: pytest.Pytester) -> None:
    marker = "run='run.json', max_step_ms=120, max_exposed_comm=0.5, fail_on='host.*'"
    done = project.runpytest_subprocess(
        "-p", "no:randomly", *_written(project, marker, "assert ddprof_run.ledger.loc[2, 'dataloader_us'] == 38_000")
    )
    assert done.ret == 0, done.stdout.str()


OVER = {"max_step_ms=90": "step is 100 ms", "max_exposed_comm=0.1": "exposed_comm is 30 %"}
OVER["fail_on=['warning']"] = "critical input.straggler"


@pytest.mark.parametrize("budget", OVER)
def test_a_run_over_budget_fails_with_the_verdict(project: pytest.Pytester, budget: str) -> None:
    code, out = _session(project, f"run='run.json', {budget}")
    assert code == 1 and OVER[budget] in out and "The loader of rank 2 is late" in out


@pytest.mark.parametrize("marker", ["", "run='a', run_fixture='b'", "run='run.json', max_steps=3", "'run.json'"])
def test_a_marker_that_makes_no_sense_is_an_error(project: pytest.Pytester, marker: str) -> None:
    code, out = _session(project, marker)
    assert code != 0 and "ddprof_budget" in out


def test_a_run_that_is_not_there_fails_in_one_line(project: pytest.Pytester) -> None:
    code, out = _session(project, "run='absent'")
    assert code == 1 and "absent" in out and "Traceback" not in out


def test_a_run_is_held_against_the_baseline_that_is_kept_with_the_tests(project: pytest.Pytester) -> None:
    marker = "run='run.json', baseline='baselines/small.json', max_regression='5%', fail_on='warning'"
    code, out = _session(project, marker)
    assert code == 1 and "no such baseline" in out
    for switches in (["--ddprof-update-baselines"], []):  # then the finding is known: only what is new fails
        code, out = _session(project, marker, *switches)
        assert code == 0 and (project.path / "baselines" / "small.json").is_file(), out
    path: Path = project.path / "run.json"
    document = json.loads(path.read_text())
    steps = document["steps"]
    steps |= {"wall_us": 2 * steps["wall_us"], "per_step_us": [2 * us for us in steps["per_step_us"]]}
    path.write_text(json.dumps(document))
    code, out = _session(project, marker)
    assert code == 1 and "slower, allowed is 5%" in out

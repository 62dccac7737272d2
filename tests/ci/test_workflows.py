"""Workflows and the action can be read, and give their scripts what these ask for."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


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

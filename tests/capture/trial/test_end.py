"""A job that would never end is ended after a number of steps, on both ranks together."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import Captured, ddprof_run, forked, script

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    """The same eleven steps with the phase timers of both kinds; what the script says lies beside the runs."""
    options = ("--skip", "2", "--steps", "2", "--end-after", "11")
    places = {native: tmp_path_factory.mktemp("ended") for native in ("1", "0")}
    return {
        native: ddprof_run(out, forked("endless.py", str(out)), *options, DDPROF_NATIVE=native)
        for native, out in places.items()
    }


@pytest.mark.parametrize("native", ["1", "0"])
def test_all_ranks_end_between_the_same_steps_and_the_script_cleans_up(ended: dict[str, Captured], native: str) -> None:
    run = ended[native]
    assert run.code == 0, run.output
    assert [side["trial"]["steps"] for side in run.sidecars] == [11, 11]
    assert [side["steps_total"] for side in run.sidecars] == [11, 11]
    assert [side["state"] for side in run.sidecars] == ["exit", "exit"] and sorted(run.traces) == [0, 1]
    assert {side["stacks"]["collector"] for side in run.sidecars} == {"native" if native == "1" else "thread"}
    for rank in (0, 1):  # peers were there for a collective in `finally`, the groups still for what runs at exit
        said = (run.folder.parent / f"rank{rank}").read_text()
        assert said.split("\n")[:2] == ["finally 2", "atexit True"]
        assert [step["index"] for step in run.sidecars[rank]["steps"]] == list(range(11))
    assert run.sidecars[0]["trial"]["loss"] > 0
    assert run.manifest["options"]["end_after"] == 11


def test_the_same_steps_leave_the_same_parameters(ended: dict[str, Captured]) -> None:
    digests = [side["trial"]["parameters"]["digest"] for run in ended.values() for side in run.sidecars]
    assert len(digests) == 4 and len(set(digests)) == 1


@pytest.mark.slow
def test_torchrun_ends_well(tmp_path: Path) -> None:
    run = ddprof_run(tmp_path, script("endless.py", str(tmp_path)), "--end-after", "4")
    assert run.code == 0, run.output
    assert [side["trial"]["steps"] for side in run.sidecars] == [4, 4]

"""A job that would never end is ended after a number of steps, on both ranks together."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import ddprof_run, ranks_of, script

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("native", ["1", "0"])
def test_all_ranks_end_between_the_same_steps_and_the_script_cleans_up(tmp_path: Path, native: str) -> None:
    command = ranks_of("endless.py", str(tmp_path))
    run = ddprof_run(
        tmp_path / "runs", command, "--skip", "2", "--steps", "2", "--end-after", "11", DDPROF_NATIVE=native
    )
    assert run.code == 0, run.output
    assert [side["trial"]["steps"] for side in run.sidecars] == [11, 11]
    assert [side["steps_total"] for side in run.sidecars] == [11, 11]
    assert [side["state"] for side in run.sidecars] == ["exit", "exit"] and sorted(run.traces) == [0, 1]
    for rank in (0, 1):  # peers were there for a collective in `finally`, the groups still for what runs at exit
        assert (tmp_path / f"rank{rank}").read_text().split("\n")[:2] == ["finally 2", "atexit True"]
        assert [step["index"] for step in run.sidecars[rank]["steps"]] == list(range(11))
    first, second = (side["trial"] for side in run.sidecars)
    assert first["parameters"]["digest"] == second["parameters"]["digest"] and first["loss"] > 0
    assert run.manifest["options"]["end_after"] == 11


def test_torchrun_ends_well_and_the_same_steps_leave_the_same_parameters(tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run = ddprof_run(tmp_path / name / "runs", script("endless.py", str(tmp_path / name)), "--end-after", "4")
        assert run.code == 0, run.output
        digests += [side["trial"]["parameters"]["digest"] for side in run.sidecars]
    assert len(digests) == 4 and len(set(digests)) == 1


def test_without_the_option_nothing_is_imported_or_recorded(tmp_path: Path) -> None:
    run = ddprof_run(tmp_path / "runs", script("loop.py"))
    assert run.code == 0 and all("trial" not in side for side in run.sidecars)

"""Trigger, status and stop, on a job that runs and on one that has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from damage import DAMAGES, ring
from runs import REPO, Captured, environment, ranks_of

from ddprof.capture.launcher.live import LiveRank, read_ranks
from ddprof.cli import status, stop, trigger
from ddprof.errors import NoUsableInput


@pytest.mark.parametrize("command", [trigger.command, stop.command, status.command])
def test_commands_on_a_run_that_has_ended(tmp_path: Path, command: object) -> None:
    result = CliRunner().invoke(command, [str(tmp_path)])  # type: ignore[arg-type]
    assert isinstance(result.exception, NoUsableInput)
    assert "no rank of a running job" in str(result.exception)


@pytest.mark.torch
def test_trigger_status_and_stop_on_a_running_job(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "ddprof.cli.run", "--out", str(tmp_path), "--mode", "monitor", "--name", "t", "--"]
    command = [*line, *ranks_of("loop.py", "--steps", "60", "--sleep", "0.15")]
    job = subprocess.Popen(
        command, cwd=REPO, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    folder = tmp_path / "latest"
    deadline = time.monotonic() + 60
    while not all(rank.last_step > 2 for rank in read_ranks(folder) or [LiveRank(0, "", (), 0, 0)]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    shown = CliRunner().invoke(status.command, [str(folder), "--once"])
    assert shown.exit_code == 0
    assert shown.output.startswith("2 ranks of ")
    assert "ms/step" in shown.output
    asked_for = CliRunner().invoke(trigger.command, [str(folder), "--steps", "2"])
    assert asked_for.exit_code == 0
    while len(list(folder.resolve().glob("*.pt.trace.json.gz"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert CliRunner().invoke(stop.command, [str(folder)]).exit_code == 0
    output = job.communicate(timeout=60)[0]
    assert job.returncode == 0, output
    assert "finished 60" in output
    run = Captured(0, output, folder.resolve())
    windows = [sidecar["windows"] for sidecar in run.sidecars]
    assert [len(found) for found in windows] == [1, 1]
    assert windows[0][0]["first_step"] == windows[1][0]["first_step"]
    assert windows[0][0]["last_step"] == windows[0][0]["first_step"] + 1
    assert windows[0][0]["reason"] == "ddprof trigger"
    assert [sidecar["state"] for sidecar in run.sidecars] == ["stopped", "stopped"]
    assert all(sidecar["steps_total"] < 60 for sidecar in run.sidecars)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_status_beside_damaged_rings(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    """Ranks whose rings can be read are shown; a ring that is none is no rank."""
    ring(tmp_path / "rank0.h.1.0.ring")
    ring(tmp_path / "rank1.h.2.0.ring", rank=1)
    damage(tmp_path / "rank1.h.2.0.ring")
    shown = CliRunner().invoke(status.command, [str(tmp_path), "--once"])
    assert shown.exit_code == 0, shown.exception
    ranks = 2 if damage is DAMAGES["unreadable"] and os.getuid() == 0 else 1
    assert shown.output.startswith(f"{ranks} ranks of ")


@pytest.mark.parametrize("name", ["file", "fifo", "loop", "n" * 300, "gone"])
def test_status_of_what_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    shown = CliRunner().invoke(status.command, [str(tmp_path / name)])
    assert isinstance(shown.exception, NoUsableInput)

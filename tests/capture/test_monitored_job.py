"""Trigger, status and stop, on a job that runs and on one that has ended."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from damage import DAMAGES, ring
from runs import TIMEOUT_S, Captured, cli, forked, started, wait_until

from ddprof.capture.launcher.live import read_ranks
from ddprof.errors import NoUsableInput
from ddprof.slices.live import status, stop, trigger


@pytest.mark.parametrize("command", [trigger.command, stop.command, status.command])
def test_commands_on_a_run_that_has_ended(tmp_path: Path, command: object) -> None:
    result = CliRunner().invoke(command, [str(tmp_path)])  # type: ignore[arg-type]
    assert isinstance(result.exception, NoUsableInput) and "no rank of a running job" in str(result.exception)


@pytest.mark.torch
def test_trigger_status_and_stop_on_a_running_job(tmp_path: Path) -> None:
    """The job goes on until the capture was stopped."""
    command = forked("loop.py", "--sleep", "0.05", "--until", str(tmp_path / "stopped"))
    job = started(cli("--out", str(tmp_path), "--mode", "monitor", "--name", "t", "--", *command))
    folder = tmp_path / "latest"
    wait_until(lambda: sum(rank.last_step > 2 for rank in read_ranks(folder)) == 2)
    shown = CliRunner().invoke(status.command, [str(folder), "--once"])
    assert shown.exit_code == 0 and shown.output.startswith("2 ranks of ") and "ms/step" in shown.output
    assert CliRunner().invoke(trigger.command, [str(folder), "--steps", "2"]).exit_code == 0
    wait_until(lambda: len(list(folder.resolve().glob("*.pt.trace.json.gz"))) == 2)
    assert CliRunner().invoke(stop.command, [str(folder)]).exit_code == 0
    run = Captured(0, "", folder.resolve())
    wait_until(lambda: [sidecar["state"] for sidecar in run.sidecars] == ["stopped", "stopped"])
    (tmp_path / "stopped").touch()
    output = job.communicate(timeout=TIMEOUT_S)[0]
    assert job.returncode == 0 and "finished" in output, output
    (window,), (other,) = (sidecar["windows"] for sidecar in run.sidecars)
    assert other["first_step"] == window["first_step"] == window["last_step"] - 1
    assert window["reason"] == "ddprof trigger"
    assert [sidecar["state"] for sidecar in run.sidecars] == ["stopped", "stopped"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_status_beside_damaged_rings(tmp_path: Path, damage: str) -> None:
    """Ranks whose rings can be read are shown; a ring that is none is no rank."""
    ring(tmp_path / "rank0.h.1.0.ring")
    ring(tmp_path / "rank1.h.2.0.ring", rank=1)
    DAMAGES[damage](tmp_path / "rank1.h.2.0.ring")
    shown = CliRunner().invoke(status.command, [str(tmp_path), "--once"])
    assert shown.exit_code == 0, shown.exception
    ranks = "2 ranks" if damage == "unreadable" and os.getuid() == 0 else "1 rank"
    assert shown.output.startswith(f"{ranks} of ")


@pytest.mark.parametrize("name", ["file", "fifo", "loop", "n" * 300, "gone"])
def test_status_of_what_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    assert isinstance(CliRunner().invoke(status.command, [str(tmp_path / name)]).exception, NoUsableInput)

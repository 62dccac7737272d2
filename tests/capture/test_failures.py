"""Whatever happens to a job happens just as without ddprof, and what was captured stays readable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import REPO, Captured, ddprof_run, environment, ranks_of, script

pytestmark = pytest.mark.torch


def incident(tmp_path: Path, name: str) -> Captured:
    run = ddprof_run(tmp_path, script("loop.py", "--incident", name, "--at", "8", "--rank", "1"))
    assert run.traces or name != "none"
    assert not list(run.folder.glob("*.tmp"))
    return run


def test_the_scripts_own_profiler_wins(tmp_path: Path) -> None:
    run = incident(tmp_path, "profiler")
    assert run.code == 0
    assert "finished 14" in run.output
    events = [line for line in run.output.splitlines() if line.startswith("user events")]
    assert int(events[0].split()[-1]) > 100
    first, second = run.sidecars
    assert first["windows"][0]["last_step"] == 9
    assert second["windows"][0]["last_step"] == 8
    assert any("own profiler" in note for note in second["notes"])
    assert len(second["steps"]) == 14


def test_exception_in_the_script(tmp_path: Path) -> None:
    run = incident(tmp_path, "exception")
    assert run.code == 1
    assert "the script's own defect" in run.output
    assert "exitcode: 1" in run.output
    assert sorted(run.traces) == [0, 1]
    assert [len(sidecar["steps"]) for sidecar in run.sidecars] == [8, 8]


def test_sigterm_of_one_rank(tmp_path: Path) -> None:
    run = incident(tmp_path, "SIGTERM")
    assert run.code == 1
    assert "exitcode: -15" in run.output
    assert sorted(run.traces) == [0, 1]
    assert run.sidecars[1]["state"] == "signal"
    assert len(run.sidecars[1]["steps"]) == 8


def test_a_hard_exit_loses_neither_the_last_step_nor_the_open_window(tmp_path: Path) -> None:
    run = incident(tmp_path, "exit")
    assert run.code == 1
    assert "exitcode: 7)" in run.output
    assert run.sidecars[1]["state"] == "exit"
    assert len(run.sidecars[1]["steps"]) == 8
    assert 1 in run.traces


def test_death_without_warning_keeps_the_steps(tmp_path: Path) -> None:
    run = incident(tmp_path, "SIGKILL")
    assert run.code == 1
    assert "exitcode: -9)" in run.output
    survivor, victim = run.sidecars
    assert 0 in run.traces
    assert victim["state"] == "killed"
    assert [step["index"] for step in victim["steps"]] == list(range(8))
    assert all(step["backward_ns"] > 0 for step in victim["steps"])
    assert survivor["state"] == "exit" or survivor["state"] in ("signal", "watchdog")
    assert not list(run.folder.glob("*.ring"))


def _wait_for(look: Callable[[], list[Path]], count: int = 2, timeout_s: float = 40.0) -> list[Path]:
    """What `look` finds once it finds `count`, or when the time is up."""
    until = time.monotonic() + timeout_s
    while len(look()) < count and time.monotonic() < until:
        time.sleep(0.2)
    return look()


def test_hang_ends_by_signal_with_both_traces(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "ddprof.cli.run", "--out", str(tmp_path), "--name", "t", "--"]
    job = subprocess.Popen(
        [*line, *script("loop.py", "--incident", "hang")],
        cwd=REPO,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout is not None
    for text in job.stdout:
        if "hanging" in text:
            break
    stop = [sys.executable, "-m", "ddprof.cli.main", "stop", str(tmp_path / "latest")]
    subprocess.run(stop, cwd=REPO, env=environment(), check=True, capture_output=True)
    folder = (tmp_path / "latest").resolve()
    hung = _wait_for(lambda: [path for path in folder.glob("rank?.*.fr.json") if path.name.count(".") == 5])
    assert (
        len(hung) == 2
    )  # `ddprof stop` finds nobody at a step boundary: the recorders are kept, the job is not touched
    entries = json.loads(min(hung).read_text())["entries"]
    assert any(not entry["retired"] for entry in entries)
    assert job.poll() is None
    os.kill(job.pid, signal.SIGTERM)
    output = job.stdout.read()
    run = Captured(job.wait(60), output, (tmp_path / "latest").resolve())
    assert "2 traces of 2 ranks" in output, output
    assert [len(sidecar["steps"]) for sidecar in run.sidecars] == [8, 8]
    assert len(list(run.folder.glob("rank0.*.fr.json"))) == 2  # the window's, and that of the hang
    # What torchrun itself ends with on SIGTERM: an error, or seldom an abort as it closes the store its ranks left.
    assert run.code in (1, 128 + signal.SIGABRT), output


def test_full_disk(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small tmpfs here (needs root)")
    try:
        run = ddprof_run(small, ranks_of("loop.py"))
        assert run.code == 0
        assert "finished 14" in run.output
        assert not run.traces
        assert all("free on the disk" in sidecar["notes"][0] for sidecar in run.sidecars)
        assert all(len(sidecar["steps"]) == 14 for sidecar in run.sidecars)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    run = ddprof_run(blocked / "runs", ranks_of("loop.py", "--steps", "3"), TMPDIR=str(tmp_path))
    assert run.code == 0, run.output
    assert "finished 3" in run.output, run.output
    assert "cannot be written (Not a directory): writing to" in run.output, run.output
    private = tmp_path / f"ddprof-{os.getuid()}"
    folders = [path for path in private.iterdir() if not path.is_symlink()]
    assert len(folders) == 1, (sorted(map(str, private.rglob("*"))), run.output)
    written = sorted(path.name for path in folders[0].iterdir())
    assert sum(name.endswith(".sidecar.json") for name in written) == 2, (written, run.output)


@pytest.mark.parametrize("before", ["torch", "glob"])
def test_folder_that_disappears_while_the_job_runs(tmp_path: Path, before: str) -> None:
    program = (
        f"import {before}, shutil, sys, glob\n"
        f"[shutil.rmtree(p) for p in glob.glob({str(tmp_path / 'runs')!r} + '/2*')]\n"
        "sys.argv = ['loop.py', '--steps', '9']\n"
        f"exec(open({str(REPO / 'tests/capture/scripts/loop.py')!r}).read())\n"
    )
    one = tmp_path / "one.py"
    one.write_text(program)
    run = ddprof_run(
        tmp_path / "runs",
        [sys.executable, str(one)],
        RANK="0",
        WORLD_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",
    )
    assert run.code == 0, run.output
    assert "finished 9" in run.output
    assert run.output.count("nothing can be written") == 1
    assert run.output.count("is gone, full or read-only") == 1
    assert "Traceback" not in run.output


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["/nonexistent/program"], 127),
    ],
)
def test_exit_codes(tmp_path: Path, command: list[str], code: int) -> None:
    assert ddprof_run(tmp_path, command).code == code


def test_signals_are_forwarded(tmp_path: Path) -> None:
    child = "trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.1; done"
    job = subprocess.Popen(
        [sys.executable, "-m", "ddprof.cli.run", "--out", str(tmp_path), "--", "sh", "-c", child],
        cwd=REPO,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    os.kill(job.pid, signal.SIGUSR1)
    assert job.stdout.read() == "got it\n"
    assert job.wait(20) == 5

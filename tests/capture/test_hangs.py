"""Jobs that hang, fail or die early, noticed and named rightly, by rank and line, and jobs asked while they run."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from damage import DAMAGES, ring
from runs import TIMEOUT_S, Captured, cli, ddprof_run, forked, good_run, started, wait_until

from ddprof.api import analyze
from ddprof.capture.describe.stacks import ended
from ddprof.capture.last_words import note_exit
from ddprof.capture.launcher.live import read_ranks
from ddprof.errors import NoUsableInput
from ddprof.slices.hangs.explain import explain
from ddprof.slices.live.commands import status, stop, trigger

QUICK = {"DDPROF_HANG_LOOK_S": "0.5"}  # seconds without a step before the ranks are asked


# What is to be said of a fault: its kind, the rank that it begins with, words of the sentence. Twelve others, ended
# in five ways each: tests/acceptance/test_endings.py.
FAULTS = {
    "message": ("message", 0, ("Rank 1 waits for message 9 from rank 0", "in message()")),
    "store": ("store", 1, ("in await_key()", "in prepare()")),
    "evaluation": ("not_entered", 1, ("in evaluate()", "all_reduce")),
    "exception": ("error", 1, ("Rank 1 raised ValueError", "bad sample 17", "in main()")),
}


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_which_the_library_gives_up(fault: str, ranks: int, tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, forked("hanging.py", fault, "1", "10", ranks=ranks))
    (kind, rank, words), hang = FAULTS[fault], explain([str(done.folder)])
    assert done.code != 0 and (hang.kind, hang.ranks) == (kind, (rank,)), hang.sentence
    assert all(word in hang.sentence for word in words) and hang.sentence in done.output, hang.sentence


@pytest.mark.torch
def test_a_hang_is_noticed_while_it_lasts_and_ended_on_request(tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, forked("hanging.py", "skipped"), "--on-hang", "abort", **QUICK)
    assert done.code != 0 and done.output.count("ddprof: the job hangs: no step for ") == 1
    told = done.manifest["hang"]
    assert told["kind"] == "skipped" and told["sentence"].startswith("Rank 1 went on to all_reduce (hanging.py:")
    assert len(list(done.folder.glob("*.where.json"))) == 2
    assert explain([str(done.folder)]).sentence == told["sentence"]


@pytest.mark.torch
def test_an_exception_is_told_first_by_every_screen(tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, forked("hanging.py", "exception"), "--skip", "2", "--steps", "3")
    sentence = "Rank 1 raised ValueError at hanging.py:"
    assert done.code == 1 and f"the job ended with exit code 1. {sentence}" in done.output
    run = analyze(str(done.folder))
    assert run.report.failure is not None and run.report.failure.sentence.startswith(sentence)
    assert f"Failed: {sentence}" in str(run) and json.loads(run.to_json())["failure"]["ranks"] == [1]


@pytest.mark.torch
def test_a_slow_step_is_no_hang(tmp_path: Path) -> None:
    """Rank 1 evaluates for a hundred times a step, and the ranks are asked again and again."""
    done = good_run(tmp_path, forked("hanging.py", "slow"), **QUICK)
    assert "hangs" not in done.output and done.manifest["hang"] is None
    assert not list(done.folder.glob("*.where.json")) and not (done.folder / "control.json").exists()


HANDLED = "import os, signal as s, sys\ns.signal(15, lambda *_: sys.exit(5))\nos.kill(os.getpid(), 15)\ns.pause()\n"
SCRIPTS = {
    "syntax": ("def f(:\n", 1, "Rank 1 raised SyntaxError: invalid syntax (job.py, line 1)."),
    "early": ("def go():\n    raise ValueError('token=abc')\ngo()\n", 1, "at job.py:2 in go(): token=MASKED."),
    "argument": ("import argparse as a\np = a.ArgumentParser()\np.add_argument('lr')\np.parse_args()\n",
                 2, "job.py:4: exit code 2: job.py: error: the following arguments are required: lr."),
    "exit": ("import sys\nsys.exit(3)\n", 3, "Rank 1 called sys.exit at job.py:2: exit code 3."),
    "logged": ("try: {}[1]\nexcept KeyError: quit(3)\n", 3, "quit at job.py:2: exit code 3, after KeyError at job.py"),
    "none": (None, 2, "raised FileNotFoundError: no such script: "), "well": ("import sys\nsys.exit(0)\n", 0, ""),
    "signal": (HANDLED, 5, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_why_a_job_died_is_said(name: str, tmp_path: Path) -> None:
    source, code, words = SCRIPTS[name]
    script = tmp_path / "job.py"
    if source is not None:
        script.write_text(source)
    run = ddprof_run(tmp_path / "out", [sys.executable, str(script)], RANK="1", WORLD_SIZE="2")
    assert (run.code, any(run.folder.glob("*.end.json"))) == (code, words != "") and words in run.output, run.output


def test_an_exit_that_the_script_caught_before_its_last_step_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)
    monkeypatch.setattr(sys, "_ddprof_exit", (0, 0, None), raising=False)
    note_exit(3, sys._getframe())
    assert ended("exit", time.time_ns() - 10**9)["error"]["message"] == "exit code 3"
    assert ended("exit", time.time_ns() + 1)["error"] is None


NO_FOLDERS = ("file", "fifo", "loop", "n" * 300, "gone")
NOT_RUNNING = [*((each, "") for each in (trigger, stop, status)), *((status, name) for name in NO_FOLDERS)]


@pytest.mark.parametrize(("command", "name"), NOT_RUNNING)
def test_commands_on_a_run_that_has_ended_and_status_of_what_is_no_folder(
    tmp_path: Path, command: Any, name: str
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    result = CliRunner().invoke(command, [str(tmp_path / name)])
    assert isinstance(result.exception, NoUsableInput) and (name or "no rank of a running job" in str(result.exception))


@pytest.mark.torch
def test_trigger_status_and_stop_on_a_running_job(tmp_path: Path) -> None:
    """The job goes on until the capture was stopped."""
    command = forked("loop.py", "--sleep", "0.05", "--until", str(tmp_path / "stopped"))
    job = started(cli("--out", str(tmp_path), "--mode", "monitor", "--name", "t", "--", *command))
    folder = tmp_path / "latest"
    wait_until(lambda: sum(rank.last_step > 2 for rank in read_ranks(folder)) == 2)
    shown = CliRunner().invoke(status, [str(folder), "--once"])
    assert shown.exit_code == 0 and shown.output.startswith("2 ranks of ") and "ms/step" in shown.output
    assert CliRunner().invoke(trigger, [str(folder), "--steps", "2"]).exit_code == 0
    wait_until(lambda: len(list(folder.resolve().glob("*.pt.trace.json.gz"))) == 2)
    assert CliRunner().invoke(stop, [str(folder)]).exit_code == 0
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
    shown = CliRunner().invoke(status, [str(tmp_path), "--once"])
    assert shown.exit_code == 0, shown.exception
    ranks = "2 ranks" if damage == "unreadable" and os.getuid() == 0 else "1 rank"
    assert shown.output.startswith(f"{ranks} of ")

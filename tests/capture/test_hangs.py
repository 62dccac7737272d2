"""Jobs that hang, fail or die early: noticed and named rightly, by rank and line; a slow healthy step is no hang."""

import json
import sys
import time
from pathlib import Path

import pytest
from runs import ddprof_run, forked, good_run

from ddprof.api import analyze
from ddprof.capture.describe.stacks import ended
from ddprof.capture.last_words import note_exit
from ddprof.slices.hangs.explain import explain

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
    "exit": ("import sys\nsys.exit(3)\n", 3, "Rank 1 called sys.exit at job.py:2: exit code 3."),
    "handled": ("import sys\ntry:\n    sys.exit(3)\nfinally:\n    pass\n", 3, "exit code 3"),
    "none": (None, 2, "Rank 1 raised FileNotFoundError: no such script: "),
    "signal": (HANDLED, 5, ""),
    "well": ("import sys\nsys.exit(0)\n", 0, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_why_a_job_died_is_said(name: str, tmp_path: Path) -> None:
    source, code, words = SCRIPTS[name]
    script = tmp_path / "job.py"
    if source is not None:
        script.write_text(source)
    run = ddprof_run(tmp_path / "out", [sys.executable, str(script)], RANK="1", WORLD_SIZE="2")
    assert run.code == code
    assert words in run.output and len(list(run.folder.glob("*.end.json"))) == (words != ""), run.output


def test_an_exit_that_the_script_caught_before_its_last_step_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)
    monkeypatch.setattr(sys, "_ddprof_exit", None, raising=False)
    note_exit(3, sys._getframe())
    assert ended("exit", time.time_ns() - 10**9)["error"]["message"] == "exit code 3"
    assert ended("exit", time.time_ns() + 1)["error"] is None

"""A job that dies before its first step, or by `sys.exit`, says why, by rank and line."""

import sys
import time
from pathlib import Path

import pytest
from runs import ddprof_run

from ddprof.capture.describe.stacks import ended
from ddprof.capture.last_words import note_exit

HANDLED = (
    "import os, signal, sys\nsignal.signal(15, lambda *_: sys.exit(5))\nos.kill(os.getpid(), 15)\nsignal.pause()\n"
)
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


def test_a_call_of_exit_that_the_script_caught_before_its_last_step_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)
    monkeypatch.setattr(sys, "_ddprof_exit", None, raising=False)
    note_exit(3, sys._getframe())
    assert ended("exit", time.time_ns() - 10**9)["error"]["message"] == "exit code 3"
    assert ended("exit", time.time_ns() + 1)["error"] is None

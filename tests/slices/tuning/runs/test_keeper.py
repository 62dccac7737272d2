"""No process of a trial outlives it: not where it ends by itself, hangs, is told to end, or `ddprof tune` is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddprof.slices.tuning.runs import keeper

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are followed by /proc")
LONGEST_S = 300.0
# Who takes no notice is killed after 0.2 s, not 3.
IMPATIENT = "from ddprof.slices.tuning.runs import keeper; keeper._LEFT_S = 0.2; keeper.main()"
# Starts a process in a session of its own that takes no notice of SIGTERM, an orphan of it, and goes on as told.
FAMILY = """
import os, signal, subprocess, sys, time
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
orphan = (
    "import subprocess, sys; sleep = [sys.executable, '-c', 'import time; time.sleep(600)']; "
    "print(subprocess.Popen(sleep, stdout=subprocess.DEVNULL).pid)"
)
found = subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, start_new_session=True)
open(sys.argv[1] + ".part", "w").write(f"{os.getpid()} {child.pid} {found.stdout.decode()}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
print("printed by the job", flush=True)
if sys.argv[2] == "hang":
    time.sleep(600)
os._exit(int(sys.argv[2]))
"""


def _start(tmp_path: Path, what: str, timeout_s: float = LONGEST_S) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", FAMILY, str(tmp_path / "pids"), what]
    line = [sys.executable, "-c", IMPATIENT, str(timeout_s), str(tmp_path / "log"), *command]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _answer(kept: subprocess.Popen[bytes]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(kept.stdout.readline())
    kept.communicate()
    return answer


def _pids(tmp_path: Path) -> list[int]:
    """Ids of the job's processes, once all are there."""
    _wait(lambda: (tmp_path / "pids").exists())
    return [int(word) for word in (tmp_path / "pids").read_text().split()]


def _wait(is_so) -> None:
    end_s = time.monotonic() + LONGEST_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def _is_living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(("what", "code"), [("0", 0), ("3", 3)])
def test_what_a_job_leaves_behind_is_ended_and_its_code_told(tmp_path: Path, what: str, code: int) -> None:
    answer = _answer(_start(tmp_path, what))
    assert answer["why"] == "exit" and answer["code"] == code and answer["left"] >= 2
    assert not any(_is_living(pid) for pid in _pids(tmp_path))
    assert (tmp_path / "log").read_text() == "printed by the job\n"


def test_a_job_that_hangs_is_ended_after_its_time(tmp_path: Path) -> None:
    assert _answer(_start(tmp_path, "hang", timeout_s=5.0))["why"] == "timeout"
    if (tmp_path / "pids").exists():  # on a loaded machine it may not have come so far
        assert not any(_is_living(pid) for pid in _pids(tmp_path))


def test_a_job_is_ended_with_who_waits_for_it(tmp_path: Path) -> None:
    """Standard input ends however the other side ends: closed, or killed."""
    kept, pids = _start(tmp_path, "hang"), _pids(tmp_path)
    assert all(_is_living(pid) for pid in pids)
    kept.stdin.close()
    assert json.loads(kept.stdout.readline())["why"] == "told"
    kept.wait()
    assert not any(_is_living(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_where_the_waiting_process_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    waits = "from subprocess import *; import sys; kept = Popen(sys.argv[1:], stdin=PIPE, start_new_session=True)\n"
    waits += "print(kept.pid, flush=True); kept.wait()"
    job = [sys.executable, "-c", FAMILY, str(tmp_path / "pids"), "hang"]
    program = [str(keeper.__file__)] if number == signal.SIGTERM else ["-c", IMPATIENT]
    kept = [sys.executable, *program, str(LONGEST_S), str(tmp_path / "log"), *job]
    waiting = subprocess.Popen([sys.executable, "-c", waits, *kept], stdout=subprocess.PIPE)
    pids = [int(waiting.stdout.readline()), *_pids(tmp_path)]
    waiting.send_signal(number)
    waiting.wait()
    _wait(lambda: not any(_is_living(pid) for pid in pids))


def test_a_first_process_is_ended_where_its_keeper_is_killed(tmp_path: Path) -> None:
    kept, pids = _start(tmp_path, "hang"), _pids(tmp_path)
    kept.kill()
    kept.wait()
    _wait(lambda: not _is_living(pids[0]))
    for pid in pids[1:]:  # the launcher's own to end: this one is a stand-in that does not
        os.kill(pid, signal.SIGKILL)

"""Files of a hung job, however it was ended, name the right rank and line, or nobody's."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from called import TIMEOUT_S, told, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.slow]
# Kind -> the ranks that it begins with, and functions of the script one of which the sentence has to name.
KINDS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "skip": ((1,), ("count()", "leave_out()", "tell_all()")),
    **{"order": ((2,), ("swap()", "tell_all()")), "shape": ((0,), ("widen()",)), "exits": ((2,), ("",))},
    **{"dies": ((1,), ("line_up()", "die()")), "loader": ((1,), ("take_twice()",)), "gil": ((2,), ("hold_lock()",))},
    **{"branch": ((0,), ("line_up()",)), "read": ((1,), ("read_shard()",)), "batches": ((1,), ("line_up()",))},
    **{"save": ((0,), ("write()", "keep()")), "groups": ((0, 1), ("in_pairs_backwards()",))},
}
STOOD_S = 25  # after which somebody ends a job that stands still
LIBRARY_S = 20
ENDED_S = 120  # a launcher's patience with its ranks is 30 s


def _signal(job: "subprocess.Popen[str]", number: int, to: str) -> None:
    if to == "all":  # Ctrl-C
        os.killpg(job.pid, number)
    elif to == "job":
        os.kill(job.pid, number)
    else:
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        torchrun = [pid for pid in children if b"torch.distributed.run" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(int(torchrun[-1]), number)


# How a job is ended -> the signal, and to whom; of "nothing" and "library" none is sent.
ENDINGS = {"nothing": (), "SIGTERM": (signal.SIGTERM, "job"), "SIGINT": (signal.SIGINT, "all"), "library": ()}
ENDINGS |= {"launcher": (signal.SIGKILL, "launcher")}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_who_stood_still_is_known_after_any_ending(kind: str, ending: str, tmp_path: Path) -> None:
    ranks, functions = KINDS[kind]
    mark = tmp_path / "mark"
    run = [sys.executable, "-m", "ddprof.cli.run", "--out", str(tmp_path / "runs"), "--"]
    stalls = torchrun(3, "hangs/stalls.py", kind, str(LIBRARY_S if ending == "library" else 1800), str(mark))
    job = subprocess.Popen([*run, *stalls], env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True)
    try:
        _wait(lambda: mark.exists() or job.poll() is not None)
        until = time.monotonic() + STOOD_S
        _wait(lambda: time.monotonic() > until or job.poll() is not None)
        if job.poll() is None and ENDINGS[ending]:
            _signal(job, *ENDINGS[ending])
        if ending != "nothing":
            job.wait(ENDED_S)
        hang = told("hang", (tmp_path / "runs" / "latest").resolve(), "--json")
    finally:
        for path in Path("/proc").glob("[0-9]*/stat"):  # of the session: ranks may outlive their launcher
            with suppress(OSError):
                if int(path.read_text().rpartition(")")[2].split()[3]) == job.pid:
                    os.kill(int(path.parent.name), signal.SIGKILL)
        job.wait()
    assert tuple(hang["ranks"]) == ranks, hang
    assert any(function in hang["sentence"] for function in functions), hang


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.1)

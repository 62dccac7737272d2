"""Jobs that take turns: they are really held, their own turns are what counts, and a broken one says why."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.workload_pairs import turns
from benchmarks.workload_pairs.processes import Processes
from benchmarks.workload_pairs.turns import LAPS, mean_ms, take_turns, undisturbed

pytest.importorskip("psutil")
PATIENCE_S = 300.0

# Two processes, as a launcher and its rank: the inner one writes a lap every `pace` seconds.
RANK = """
import sys, time
with open(sys.argv[1], "w", buffering=1) as laps:
    begun = time.monotonic_ns()
    while True:
        time.sleep(float(sys.argv[2]))
        ended = time.monotonic_ns()
        laps.write(f"{begun} {ended}\\n")
        begun = ended
"""
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', *sys.argv[1:]]))"


def job(folder: Path, pace_s: float) -> list[str]:
    folder.mkdir()
    return [sys.executable, "-c", LAUNCHER, RANK, str(folder / LAPS), str(pace_s)]


def wait_for_laps(laps: Path, beyond: int) -> None:
    """Returns when the file of laps has more than so many bytes."""
    until = time.monotonic() + PATIENCE_S
    while not laps.exists() or laps.stat().st_size <= beyond:
        assert time.monotonic() < until, "the job writes no laps"
        time.sleep(0.02)


def test_a_held_job_stands_still_with_its_children(tmp_path: Path) -> None:
    processes = Processes(subprocess.Popen(job(tmp_path / "a", 0.01)))
    laps = tmp_path / "a" / LAPS
    try:
        wait_for_laps(laps, 0)
        processes.stop()
        held = laps.stat().st_size
        time.sleep(0.3)
        assert laps.stat().st_size == held
        processes.resume()
        wait_for_laps(laps, held)
    finally:
        processes.end()
    after = laps.stat().st_size
    time.sleep(0.2)
    assert not processes.running and laps.stat().st_size == after


def test_each_job_is_measured_in_its_own_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is shorter than the job's own pace, and none as long as the turn of the other in which it was held."""
    monkeypatch.setattr(turns, "MIN_TURN_S", 2.0)
    monkeypatch.setattr(turns, "_cpu_ticks", lambda: (0, 0))
    folders = [tmp_path / "slow", tmp_path / "fast"]
    lines = [job(folders[0], 0.03), job(folders[1], 0.01)]
    slow, fast = take_turns(lines, folders, os.environ, first=5, rounds=2)
    assert (slow.problem, fast.problem) == ("", "") and len(slow.turns_ms) == len(fast.turns_ms) == 2
    assert slow.step_ms is not None and fast.step_ms is not None
    assert 30 <= slow.step_ms < 2_000 and 10 <= fast.step_ms < 2_000


def test_a_job_that_ends_says_why_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MIN_TURN_S", 2.0)
    folders = [tmp_path / "good", tmp_path / "bad"]
    folders[1].mkdir()
    broken = [sys.executable, "-c", "raise ValueError('no such model')"]
    good, bad = take_turns([job(folders[0], 0.01), broken], folders, os.environ, first=5, rounds=1)
    assert good.step_ms is not None and bad.step_ms is None
    assert bad.problem == "ended with exit code 1: ValueError: no such model"


def test_whole_periods_count_and_a_hiccup_does_not() -> None:
    lengths_ms = [900, *([1, 3] * 6), 50, 1, 1, 1, 1]  # the lap in which it was held, a save every other step, a hiccup
    ends = np.cumsum(np.array(lengths_ms, np.int64) * 10**6)
    laps = np.stack((ends - np.array(lengths_ms) * 10**6, ends), axis=1)
    begun = int(laps[0, 0]) + 10**6
    assert mean_ms(laps, begun, int(ends[-1])) == pytest.approx(2.0)
    assert mean_ms(laps, begun, int(ends[4])) is None  # one whole lap is left out, three are no period
    assert mean_ms(np.empty((0, 2), np.int64), 0, 10) is None


def test_rounds_in_which_others_took_the_machine_do_not_count() -> None:
    assert undisturbed([0.0, 0.015, 0.0]) == [True] * 3  # too little to disturb
    assert undisturbed([0.03, 0.04, 0.2, 0.03]) == [True, True, False, True]
    assert undisturbed([0.3, 0.4, 0.3]) == [True] * 3  # no round was calm: all are alike
    assert undisturbed([]) == []

"""Jobs that take turns: they are really held, their own turns are what counts, and a broken one says why."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.workload_pairs import turns
from benchmarks.workload_pairs.kept_records import keep_turns
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
    monkeypatch.setattr(turns, "MIN_TURN_S", 1.0)
    monkeypatch.setattr(turns, "_cpu_ticks", lambda: (0, 0))
    folders = [tmp_path / "slow", tmp_path / "fast"]
    slow, fast = take_turns([job(folders[0], 0.03), job(folders[1], 0.01)], folders, os.environ, first=5, rounds=2)
    assert (slow.problem, fast.problem) == ("", "") and len(slow.turns_ms) == len(fast.turns_ms) == 2
    assert slow.step_ms and 30 <= slow.step_ms < 2_000 and fast.step_ms and 10 <= fast.step_ms < 2_000


def test_a_job_that_ends_says_why_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MIN_TURN_S", 1.0)
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


def step(index: int, start_ns: int, profiled: bool = False) -> dict[str, Any]:
    return {"index": index, "start_ns": start_ns, "end_ns": start_ns + 10, "profiled": profiled}


def kept(folder: Path, **content: Any) -> Any:
    """A sidecar whose job was traced for two steps, ran two more, was held at 60 and had turns at 100 and 300."""
    steps = [step(0, 0, True), step(1, 10, True), step(2, 20), step(3, 30)]
    held = {**step(4, 40), "end_ns": 104}  # began before it was held
    steps += [held, *(step(5 + i, 104 + 10 * i) for i in range(6)), {**step(11, 164), "end_ns": 310}]
    steps += [step(12 + i, 310 + 10 * i) for i in range(3)]
    path = folder / "rank0.here.1.0.sidecar.json"
    path.write_text(json.dumps({"rank": 0, "steps": steps, "steps_total": len(steps), **content}))
    keep_turns(folder, held_at_ns=60, turns=[(100, 170), (300, 340)], period=2)
    return json.loads(path.read_text())


def test_whole_periods_of_each_turn_stay_beside_the_window_and_the_step_after_it(tmp_path: Path) -> None:
    told = kept(tmp_path)
    # Of steps 5 to 10 the first is left out and four are two periods; of 12 to 14 it leaves one period.
    assert [s["index"] for s in told["steps"]] == [0, 1, 2, 6, 7, 8, 9, 13, 14]
    assert told["steps_total"] == 9 and told["rank"] == 0


def test_pauses_outside_these_steps_go_and_other_lists_stay(tmp_path: Path) -> None:
    starts = {5: True, 25: True, 35: False, 101: False, 115: True, 175: False, 325: True, 312: False}
    gc = [{"start_ns": start, "dur_ns": 4} for start in starts]
    told = kept(tmp_path, gc=gc, batches=[{"step": 5}], notes=["held"], checkpoints=[])
    assert [pause["start_ns"] for pause in told["gc"]] == [start for start, stays in starts.items() if stays]
    assert (told["batches"], told["notes"], told["checkpoints"]) == ([{"step": 5}], ["held"], [])


def test_a_fetch_that_was_held_goes_and_so_does_half_a_line(tmp_path: Path) -> None:
    fetches = [{"worker": 0, "start_ns": start, "dur_ns": 20} for start in (10, 50, 101, 165, 305)]
    lines = [json.dumps(fetch) + "\n" for fetch in fetches]
    log = tmp_path / "rank0.here.1.0.workers.jsonl"
    log.write_text("".join(lines) + '{"worker": 0, "start')
    kept(tmp_path)
    assert log.read_text() == lines[0] + lines[2] + lines[4]

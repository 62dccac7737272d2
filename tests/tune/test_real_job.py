"""`ddprof tune` on a real job of two ranks: what it runs, keeps and leaves behind, also where it is killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = Path(__file__).with_name("stand_in.py")
TWO_RANKS = [sys.executable, str(ROOT / "tests" / "capture" / "scripts" / "two_ranks.py")]
LONGEST_S = 900.0
KILLS = 4  # of each tuning
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are followed by /proc"),
]


def _start(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    pytest.importorskip("torch")
    out = ["--yes", "--out", str(tmp_path / "out"), "--steps", "10", "--no-record", *options]
    command = [] if "--resume" in options else ["--", *TWO_RANKS, str(STAND_IN)]
    return subprocess.Popen(
        [sys.executable, "-m", "ddprof.cli.main", "tune", *out, *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "DDPROF_DATA_HOME": str(tmp_path / "data"), "MARK": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_as_in_a_terminal,
    )


def _as_in_a_terminal() -> None:
    """A shell has its background jobs take no notice of SIGINT, and so would what these tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _left(tmp_path: Path) -> list[str]:
    """Commands of processes that have this test's mark in their environment."""
    mark, found = f"MARK={tmp_path}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def _nothing_is_left(tmp_path: Path) -> None:
    end_s = time.monotonic() + LONGEST_S
    while (left := _left(tmp_path)) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert left == []


def _document(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    (path,) = (tmp_path / "out").glob("*/tune.json")
    return path.parent, json.loads(path.read_text())


def test_a_job_is_diagnosed_and_its_fix_tried_on_both_ranks(tmp_path: Path) -> None:
    """A loaded machine may leave the gain undecided; what is run and compared is the same on any."""
    tuned = _start(tmp_path, "--budget", "30s")
    out, err = tuned.communicate(timeout=LONGEST_S)
    assert tuned.returncode == 0, err
    folder, document = _document(tmp_path)
    assert document["result"]["verdict"] in ("keep", "undecided", "nothing to change")
    trials = document["trials"]
    assert trials[0]["label"] == "diagnosis" and trials[0]["steps"] == 20
    for trial in trials:
        assert not trial["failed"] and not trial["note"], trial
        assert set(trial["held"]) == {"0", "1"} or trial["steps"] != trials[0]["steps"]
        work = folder / "trials" / trial["folder"] / "work"
        assert sorted(path.name for path in work.iterdir()) == ["rank0", "rank1"]
    assert any("num_workers=" in candidate["name"] for candidate in document["candidates"]), document["headline"]
    tried = [row for row in document["result"]["tried"] if row["measured"]]
    assert all(row["results"]["kind"] in ("same", "unknown") for row in tried)
    assert out.split(":")[0].split("\n")[0] in ("KEEP", "UNDECIDED", "NOTHING TO CHANGE")
    _nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGTERM))],
)
def test_killed_it_leaves_no_process_and_goes_on_where_it_was(tmp_path: Path, number: signal.Signals) -> None:
    tuned = _start(tmp_path, "--budget", "3000s")
    assert tuned.stderr is not None
    for line in tuned.stderr:
        if line.startswith("ddprof: baseline"):
            break
    tuned.send_signal(number)
    tuned.communicate(timeout=LONGEST_S)
    assert tuned.returncode != 0
    _nothing_is_left(tmp_path)
    folder, document = _document(tmp_path)
    made = len(document["trials"])
    resumed = _start(tmp_path, "--budget", "1s", "--resume", str(folder))
    out, err = resumed.communicate(timeout=LONGEST_S)
    assert resumed.returncode == 0, err
    # A pair that was begun is ended: what its test counts.
    assert err.count("made before") >= 1 and len(_document(tmp_path)[1]["trials"]) >= made
    assert out.startswith("UNDECIDED")


@pytest.mark.slow
def test_killed_at_random_moments_it_leaves_no_process_and_resumes(tmp_path: Path) -> None:
    """Each tuning is killed several times, at any moment of its start, its diagnosis or its trials, and goes on each
    time; then it is let finish."""
    generator = random.Random(int(os.environ.get("DDPROF_SEED", "1")))
    for number in range(int(os.environ.get("DDPROF_ROUNDS", "4"))):
        place, made = tmp_path / str(number), 0
        for kill in range(KILLS):
            tuned = _start(place, "--budget", "3000s", *_resuming(place))
            signalled, runs, after_s = generator.choice(SIGNALS), generator.randrange(3), generator.uniform(0.2, 15)
            err = _after_runs(tuned, runs)
            with suppress(subprocess.TimeoutExpired):
                tuned.wait(after_s)
            tuned.send_signal(signalled)
            err += tuned.communicate(timeout=LONGEST_S)[1]
            told = f"tuning {number}, kill {kill}: {signalled.name} {after_s:.1f} s after {runs} runs: {err}"
            print(told)
            assert tuned.returncode != 0 and "Error" not in err.replace("KeyboardInterrupt", ""), told
            _nothing_is_left(place)
            if _resuming(place):
                trials = _document(place)[1]["trials"]
                assert len(trials) >= made and not any("was killed" in row["failed"] for row in trials), told
                made = len(trials)
        assert _resuming(place), "it never came to its first run"
        finished = _start(place, "--budget", "1s", *_resuming(place))
        out, err = finished.communicate(timeout=LONGEST_S)
        assert finished.returncode == 0 and out.startswith("UNDECIDED"), (out, err)
        _nothing_is_left(place)
        document = _document(place)[1]
        assert document["result"]["runs"] == len(document["trials"]) >= max(made, 1)  # a pair that was begun is ended


def _after_runs(tuned: subprocess.Popen[str], runs: int) -> str:
    """Wait until it has made so many more runs, or has ended; what it has said by then."""
    assert tuned.stderr is not None
    said = ""
    while runs and (line := tuned.stderr.readline()):
        said += line
        runs -= re.search(r"^ddprof: .* \(\d+ s\)", line) is not None
    return said


def _resuming(place: Path) -> tuple[str, ...]:
    """Options that go on with the tuning of a folder; none where there is nothing to go on with."""
    found = list((place / "out").glob("*/tune.json"))
    return ("--resume", str(found[0].parent)) if found else ()

"""`ddprof tune` on real processes: what it runs, keeps and leaves behind, also where it is killed."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_runs import Job, Silent, candidate, journal
from msgspec.structs import replace

from ddprof.slices.tuning.journal import TrialJournal
from ddprof.slices.tuning.runs import trial
from ddprof.slices.tuning.runs.trial import TrialOrder
from ddprof.slices.tuning.session import conclude, prepare
from ddprof.trials.document import Trial, TuneOptions, TuneState

ROOT, STAND_IN = Path(__file__).resolve().parents[3], Path(__file__).with_name("stand_in.py")
JOB = [sys.executable, str(ROOT / "tests" / "capture" / "scripts" / "forked_ranks.py"), "2", str(STAND_IN)]
LONGEST_S = 900.0
KILLS = 4  # of each tuning
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)

has_proc = Path("/proc/self/stat").exists()
pytestmark = [pytest.mark.torch, pytest.mark.skipif(not has_proc, reason="processes are followed by /proc")]


def _start(tmp_path: Path, *options: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
    out = ["--yes", "--out", str(tmp_path / "out"), "--no-record", *options]
    command = [] if "--resume" in options else ["--steps", "10", "--", *JOB]
    line = [sys.executable, "-m", "ddprof.cli.main", "tune", *out, *command]
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": _as_in_a_terminal}
    return subprocess.Popen(line, cwd=cwd, env={**os.environ, **_own(tmp_path)}, text=True, **how)


def _own(place: Path) -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", "DDPROF_DATA_HOME": str(place / "data"), "MARK": str(place)}


def _as_in_a_terminal() -> None:
    """Signals as a shell's foreground job has them: who is run in the background takes no notice of some."""
    for number in SIGNALS[:2] + SIGNALS[3:]:
        signal.signal(number, signal.SIG_DFL)


def _left(tmp_path: Path) -> list[str]:
    """Commands of processes that have this test's mark in their environment, but for this one."""
    mark, found = f"MARK={tmp_path}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
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


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The place of a tuning of the job: its diagnosis and one pair are real runs, later runs repeat those."""
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("tuned")
    real: dict[tuple[str, ...], Trial] = {}

    def run(order: TrialOrder, tick: Callable[[], None]) -> Trial:
        names = tuple(candidate.name for candidate in order.settings)
        if order.window is not None:
            return trial.run(order, tick)
        return replace(real.get(names) or real.setdefault(names, trial.run(order, tick)), label=order.label)

    state = TuneState(options=TuneOptions(tuple(JOB), 3000.0, 10), cwd=str(ROOT), started_utc="2026-11-24T12:00:00Z")
    made = TrialJournal(place / "out" / "t", state, run, Silent())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _own(place).items():
            patch.setenv(name, value)
        prepare(made)
        found, state.candidates = state.candidates or (), (replace(candidate("num_workers", 2), at=""),)
        # What a machine that has more work than CPUs makes doubtful is withdrawn, and asks for nothing.
        assert state.is_doubtful or any("num_workers=" in one.name for one in found), state.headline
        conclude(made, record=False)
        yield place


def test_a_job_is_diagnosed_and_its_fix_tried_on_both_ranks(tuned: Path) -> None:
    folder, document = _document(tuned)
    assert document["result"]["verdict"] in ("keep", "undecided", "nothing to change")
    trials = document["trials"]
    assert trials[0]["label"] == "diagnosis" and trials[0]["steps"] == 20
    for made in trials:
        assert not made["failed"] and not made["note"], made
        assert set(made["held"]) == {"0", "1"} or made["steps"] != trials[0]["steps"]
        assert {path.name for path in (folder / "trials" / made["folder"] / "work").iterdir()} == {"rank0", "rank1"}
    (tried,) = document["result"]["tried"]
    assert tried["measured"] and tried["results"]["kind"] in ("same", "unknown")
    _nothing_is_left(tuned)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_in_a_trial_it_leaves_no_process_and_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    began, folder = tmp_path / "began", tmp_path / "out" / "t"
    made = journal(folder, Job())
    made.baseline()
    made.state.candidates = (candidate("num_workers", 4),)
    made.trial(made.state.candidates)
    made.state.options = replace(made.state.options, command=("sh", "-c", f"sleep 600 & touch {began}; wait"))
    made.save()
    running = _start(tmp_path, "--resume", str(folder), cwd=folder)
    while not began.exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    running.send_signal(number)
    _, err = running.communicate(timeout=LONGEST_S)
    assert running.returncode != 0 and err.count("made before") == 3
    _nothing_is_left(tmp_path)
    resumed = _start(tmp_path, "--budget", "1s", "--resume", str(folder), cwd=folder)
    out, err = resumed.communicate(timeout=LONGEST_S)
    assert (resumed.returncode, err.count("made before")) == (0, 3) and out.startswith("UNDECIDED"), out + err
    assert len(_document(tmp_path)[1]["trials"]) == 3


@pytest.mark.slow
def test_killed_at_random_moments_it_leaves_no_process_and_resumes(tmp_path: Path) -> None:
    """Each tuning is killed several times, in its start, diagnosis or trials, and goes on; then it finishes."""
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
    said = ""
    while runs and (line := tuned.stderr.readline()):
        said += line
        runs -= re.search(r"^ddprof: .* \(\d+ s\)", line) is not None
    return said


def _resuming(place: Path) -> tuple[str, ...]:
    """Options that go on with the tuning of a folder; none where there is nothing to go on with."""
    found = list((place / "out").glob("*/tune.json"))
    return ("--resume", str(found[0].parent)) if found else ()

"""When a job is said to hang: only where no rank moves, and where it is proven or half of the time-out has passed."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddprof.capture.files.layout import CONTROL, host_label
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.capture.launcher import hang
from ddprof.capture.launcher.hang import Explained, HangWatch

STEM = f"rank0.{host_label()}.{os.getpid()}.0"
FIRST_NS = 1_800_000_000_000_000_000


class Played:
    """A rank of this very process whose steps and answers the test makes, under a clock of its own."""

    def __init__(self, folder: Path, explained: Explained | None, abort: bool, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.now = folder, 1000.0
        patch.setattr(hang.time, "monotonic", lambda: self.now)
        self.ring = StepRing(folder / f"{STEM}.ring", {"rank": 0, "host": host_label(), "started_ns": FIRST_NS})
        self.explained = explained
        self.watch = HangWatch(folder, lambda _: self.explained, abort)
        self.line, self.cpu_ns, self.number = 10, 0, 0
        for _ in range(4):
            self.step()

    def step(self) -> None:
        start_ns = FIRST_NS + self.number * 100_000_000
        self.ring.write(
            Step._make((self.number, start_ns, start_ns + 100_000_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, False))
        )
        self.number += 1

    def pass_time(self, seconds: float, moving: bool = False, busy: bool = False) -> list[int]:
        """Ticks twice a second, and an answer to whatever is asked. Returns the signals."""
        signals = []
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.line += moving
            self.cpu_ns += 500_000_000 if busy else 1_000_000
            if (self.folder / CONTROL).exists():
                request = json.loads((self.folder / CONTROL).read_text())["id"]
                answer = {"request": request, "frames": [{"file": "train.py", "line": self.line}], "calls": []}
                answer |= {"at_ns": int(self.now * 1e9), "cpu_ns": self.cpu_ns, "steps_total": self.number}
                (self.folder / f"{STEM}.where.json").write_text(json.dumps(answer))
            number = self.watch.tick()
            signals += [] if number is None else [number]
        return signals


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield lambda explained, abort=False: Played(tmp_path, explained, abort, monkeypatch)


def test_proof_is_told_at_once(played: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(hang.os, "kill", lambda *given: ended.append(given))
    monkeypatch.setattr(hang, "runs_here", lambda pid: False)
    job = played(Explained("skipped", "Rank 1 left a call out."), True)
    assert job.pass_time(40) == [signal.SIGTERM] and (os.getpid(), signal.SIGTERM) in ended
    assert capfd.readouterr().err.count("the job hangs: no step for 1") == 1
    assert job.watch.found["kind"] == "skipped"


def test_a_rank_that_moves_or_computes_is_no_hang(played: Any, capfd: pytest.CaptureFixture[str]) -> None:
    job = played(Explained("not_entered", "Rank 1 is elsewhere.", timeout_s=60))
    assert job.pass_time(300, moving=True) == []
    job.explained = Explained("skipped", "Two calls look alike.")
    assert job.pass_time(300, moving=True) == []
    job.explained = Explained("not_entered", "Rank 1 is elsewhere.", timeout_s=60)
    assert job.pass_time(300, busy=True) == [] and capfd.readouterr().err == "" and job.watch.found is None
    job.explained = Explained("ended", "Rank 1 ended while the files were read.")
    job.watch._explain = lambda _: (job.step(), job.explained)[1]
    assert job.pass_time(300) == [] and capfd.readouterr().err == "" and job.watch.found is None


def test_what_is_not_proven_waits_for_half_of_the_time_out(played: Any) -> None:
    job = played(Explained("not_entered", "Rank 1 is elsewhere.", timeout_s=120))
    job.pass_time(55)
    assert job.watch.found is None
    job.pass_time(60)
    assert job.watch.found["kind"] == "not_entered" and job.watch.found["still_s"] >= 60


def test_steps_take_back_what_is_found_the_end_of_ranks_not(played: Any, capfd: pytest.CaptureFixture[str]) -> None:
    job = played(Explained("crossed", "Ranks wait for one another."))
    job.pass_time(40)
    job.step()
    job.pass_time(4)
    assert job.watch.found is None and "steps resumed" in capfd.readouterr().err
    job = played(Explained("crossed", "Ranks wait for one another."))
    job.pass_time(40)
    (job.folder / f"{STEM}.ring").unlink()
    job.pass_time(4)
    assert job.watch.found is not None and "steps resumed" not in capfd.readouterr().err


def test_a_job_that_steps_is_never_asked_and_answers_of_one_that_did_not_hang_are_removed(played: Any) -> None:
    job = played(None)
    for _ in range(20):
        job.pass_time(2)
        job.step()
    assert not (job.folder / CONTROL).exists()
    job = played(None)
    job.pass_time(30)
    assert (job.folder / CONTROL).exists()
    job.watch.tidy(failed=True)  # it was ended while it stood: where its ranks were is all that is left
    assert (job.folder / CONTROL).exists() and list(job.folder.glob("*.where.json"))
    job.watch.tidy()
    assert not (job.folder / CONTROL).exists() and not list(job.folder.glob("*.where.json"))


def test_a_start_that_takes_long_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing takes a minute on a busy machine: the ranks are asked 30 s after they began, and not at once."""
    now = [1000.0]
    monkeypatch.setattr(hang.time, "monotonic", lambda: now[0])
    looks = HangWatch(tmp_path, lambda _: None, abort=False)

    def asked_within(seconds: int) -> bool:
        for _ in range(seconds):
            now[0] += 1
            looks.tick()
        return (tmp_path / CONTROL).exists()

    assert not asked_within(100)
    StepRing(tmp_path / f"{STEM}.ring", {"rank": 0, "host": host_label(), "started_ns": FIRST_NS})
    assert not asked_within(25) and asked_within(15)

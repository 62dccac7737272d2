"""The rate that follows what sampling costs, stacks as numbers, their side file, and the sampler in this process."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from runs import bare_run

from ddprof.capture.files.step import DATA, FORWARD, REST
from ddprof.capture.stacks import sampler as of_sampler
from ddprof.capture.stacks import totals as tables
from ddprof.capture.stacks.collector import MAX_FRAMES, stack_of
from ddprof.capture.stacks.rate import EARLY_NS, EARLY_SHARE, WHOLE_RUN_AHEAD_NS, WHOLE_RUN_SHARE, SampleRate
from ddprof.capture.stacks.sampler import StackFile, StackSampler
from ddprof.capture.stacks.totals import OUTERMOST, START_UP, StackTable

SECOND_NS = 10**9


def play(rate: SampleRate, each_ns: int, booking_ns: int, seconds: int) -> None:
    """A machine on which each sample takes so long."""
    due = 0.0
    for _ in range(seconds):
        due += SECOND_NS / rate.period_ns
        samples, due = int(due), due % 1
        rate.measured(samples, samples * each_ns, booking_ns, SECOND_NS)


def test_a_cheap_sample_is_taken_as_often_as_wanted_and_a_dear_start_saved_later() -> None:
    rate = SampleRate(10, 0.001, 5e9)
    play(rate, 30_000, 100_000, 60)
    assert rate.period_ns == SECOND_NS // 10
    assert rate.cost_share is not None and rate.cost_share == pytest.approx(0.0004, rel=0.1)
    rate = SampleRate(10, 0.001, 5e9)
    rate.measured(5, 50_000_000, 0, 5 * SECOND_NS)
    assert rate.period_ns == SECOND_NS * 5  # the slowest: a rank that hangs is seen all the same
    play(rate, 50_000, 50_000, 120)
    assert rate.cost_share is not None and rate.cost_share <= 0.001 and rate.period_ns <= SECOND_NS // 5


@pytest.mark.parametrize("each_us", [200, 1_000, 20_000])
def test_a_dear_sample_is_taken_as_often_as_can_be_paid(each_us: int) -> None:
    rate = SampleRate(200, 0.01, 1e9)
    play(rate, each_us * 1_000, 200_000, 300)
    assert rate.cost_share is not None and rate.cost_share <= 0.011
    assert rate.samples >= 0.5 * 0.0098 * 300 * 1e6 / each_us


def test_what_samples_cost_before_is_known_in_windows_and_one_disturbance_forgotten() -> None:
    rate, window = SampleRate(10, 0.001, 5e9), SampleRate(200, 0.01, 1e9)
    play(rate, 1_000_000, 0, 60)
    window.expect(rate)
    assert window.period_ns > SECOND_NS // 20
    rate = SampleRate(10, 0.001, 5e9)
    for taking_ns in (80_000, 2_400_000, 90_000):
        rate.measured(1, taking_ns, 0, SECOND_NS // 5)
    assert rate.period_ns <= SECOND_NS // 5


def _deep(calls: int) -> FrameType:
    return sys._getframe() if calls == 0 else _deep(calls - 1)


def _frames_of_a_generator() -> Iterator[FrameType]:
    yield sys._getframe()


def _made(name: str, before: str = "", called: str = "") -> FrameType:
    """The frame of a function of this name, which `called` calls."""
    space: dict[str, FrameType] = {}
    exec(f"import sys\n{before}def {name}():\n    return sys._getframe()\nframe = {called or name}()", space)
    return space["frame"]


def test_a_stack_is_told_by_its_frames_and_callers() -> None:
    table = StackTable()
    numbers = [table.number(stack_of(_made(name))) for name in ("first", "second", "first")]
    assert numbers[0] == numbers[2] != numbers[1]
    first_frame, frames, generators = table.new_frames()
    first_stack, stacks = table.new_stacks()
    assert (first_frame, first_stack, generators) == (0, 0, [])
    outer, frame = stacks[numbers[1]]
    assert frames[frame] == ("<string>", "second", 3)
    while outer != OUTERMOST:
        outer, frame = stacks[outer]
    assert frames[frame][0].endswith(("runpy>", ".py", "<string>", "pytest"))
    assert table.new_stacks() == (len(stacks), [])
    for frame in (_made("third"), next(_frames_of_a_generator()), next(sys._getframe() for _ in range(1))):
        table.number(stack_of(frame))
    told, new, generators = table.new_frames()
    assert told == len(frames) and ("<string>", "third", 3) in new and not set(new) & set(frames)
    assert [new[number - told][1] for number in generators] == ["_frames_of_a_generator"]
    assert table.new_stacks()[0] == len(stacks)


def test_a_function_that_calls_itself_stands_once_and_a_deep_stack_is_cut() -> None:
    assert len(stack_of(_deep(300))) == len(stack_of(_deep(0)))
    stack = stack_of(_made("f400", "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(400)), "f0"))
    assert len(stack) == 2 * MAX_FRAMES
    assert stack[0].co_name == "f400" and stack[-2].co_name == f"f{401 - MAX_FRAMES}"


def test_full_tables_give_number_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_STACKS", 140)
    monkeypatch.setattr(tables, "MAX_FRAMES", 130)
    table = StackTable()
    numbers = [table.number(stack_of(_made(f"f{n}"))) for n in [*range(150), 0]]
    assert numbers[0] > 0 and numbers[-2] == 0
    assert len(table.new_stacks()[1]) <= 140 and len(table.new_frames()[1]) == 130 and numbers[-1] == numbers[0]


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    file = StackFile(tmp_path / "a.stacks.jsonl", {"rank": 3})
    file.write({"kind": "frames", "frames": []})
    assert [line["kind"] for line in written(file.path)] == ["begin", "frames"]
    assert written(file.path)[0]["rank"] == 3
    file.close()
    file.write({"kind": "end"})
    assert len(written(file.path)) == 2


def test_the_file_is_bounded_and_single_samples_before_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_sampler, "MAX_BYTES", 20_000)
    monkeypatch.setattr(of_sampler, "MAX_SAMPLE_BYTES", 5_000)
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    for _ in range(1_000):
        if file.holds_samples:
            file.write({"kind": "samples", "samples": [1, 2, 3]})
        file.write({"kind": "counts", "counts": [4, 5, 6]})
    kinds = [line["kind"] for line in written(file.path)]
    assert file.path.stat().st_size <= 20_000 and file.full
    assert 50 < kinds.count("samples") < 200 < kinds.count("counts")


def test_a_full_disk_and_a_write_that_fails_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    monkeypatch.setattr(of_sampler, "free_bytes", lambda folder: 1 << 20)
    file.check_disk()
    file.write({"kind": "counts"})
    assert file.full == "1024 KiB free on the disk of the run folder" and len(written(file.path)) == 1
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    monkeypatch.setattr(os, "write", Mock(side_effect=OSError(28, "No space left on device")))
    file.write({"kind": "counts"})
    monkeypatch.undo()
    file.write({"kind": "counts"})
    assert file.full == "No space left on device" and len(written(file.path)) == 1


LONGEST_S = 300
INTERVAL_S = sys.getswitchinterval()  # before any sampler, whose collector shortens it for moments


def timers() -> Any:
    return SimpleNamespace(thread=0, phase=REST, index=9)


def lines(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        found.setdefault(line["kind"], []).append(line)
    return found


def functions(found: dict[str, list[dict[str, Any]]], stack: int) -> list[str]:
    """Names from the innermost function outwards."""
    frames = [frame for line in found["frames"] for frame in line["frames"]]
    stacks = [entry for line in found["stacks"] for entry in line["stacks"]]
    names = []
    while stack >= 0:
        stack, frame = stacks[stack]
        names.append(frames[frame][1])
    return names


@pytest.fixture(params=["1", "0"], ids=["in C", "in Python"])
def sampler(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A started sampler; `notes` and `tracker` with it."""
    monkeypatch.setenv("DDPROF_NATIVE", request.param)
    tracker, notes = timers(), list[str]()
    made: Any = StackSampler(tracker, lambda: True, notes.append, hz=50)
    made.start(tmp_path / "a.stacks.jsonl", {"rank": 0})
    made.tracker, made.notes = tracker, notes
    yield made
    made.stop("exit")
    assert notes == []


def stopped(sampler: Any, reason: str = "exit") -> dict[str, list[dict[str, Any]]]:
    """Lines that the sampler has written when it ends for this reason."""
    sampler.stop(reason)
    return lines(sampler.path)


def planted(is_enough: Callable[[], bool]) -> None:
    """Sleep until enough was sampled: on a busy machine samples come seldom."""
    until = time.monotonic() + LONGEST_S
    while not is_enough() and time.monotonic() < until:
        time.sleep(0.05)


def planted_in(sampler: Any, phase: int) -> None:
    """Stay in `planted` until it was sampled in the phase of the open step."""
    planted(lambda: sampler._collector.wake() or (phase, 0) in {key[1:] for key in list(sampler._totals._open)})


def planted_in_a_window(sampler: Any) -> None:
    """Stay in `planted` while a window is open, until some samples were taken."""
    sampler.window(True)
    planted(lambda: sampler.described()["window_samples"] >= 5)


def test_counts_by_phase_are_there_at_the_end(sampler: Any) -> None:
    planted_in(sampler, REST)
    sampler.tracker.phase = FORWARD
    planted_in(sampler, FORWARD)
    sampler.tracker.index, sampler.tracker.phase = 10, DATA
    planted_in(sampler, DATA)  # nothing ends this step
    found = stopped(sampler)
    counts = [row for line in found["counts"] for row in line["counts"]]
    stacks = {row[1]: functions(found, row[0]) for row in counts if row[2] == 0}
    assert {(row[1], row[6]) for row in counts if row[2] == 0} == {(phase, 1) for phase in stacks}  # of one step each
    assert set(stacks) == {REST, FORWARD, START_UP} and any("planted" in names for names in stacks.values())
    assert found["begin"][0]["phases"][REST] == "rest" and found["end"][0]["reason"] == "exit"
    assert found["threads"][0]["threads"][0] == ["MainThread", threading.main_thread().native_id]
    about = sampler.described()
    assert about["samples"] > 0 and about["frac"] > 0
    assert about["samples"] + about["start_up_samples"] == sum(row[3] for row in counts if row[2] == 0)


def test_where_a_rank_stands_is_told_while_its_step_is_open(sampler: Any) -> None:
    planted(lambda: sampler._collector.wake() or b'"last":[1' in sampler.path.read_bytes())
    found = lines(sampler.path)
    assert not [row for line in found["counts"] for row in line["counts"] if row[2] == 0]
    assert "planted" in functions(found, found["counts"][-1]["last"][1])


def test_samples_of_windows_have_their_times(sampler: Any) -> None:
    began_ns = time.time_ns()
    planted_in_a_window(sampler)
    sampler.window(False)
    ended_ns = time.time_ns()
    found = stopped(sampler)
    at_ns = [line["at_ns"] + row[0] for line in found["samples"] for row in line["samples"]]
    assert len(at_ns) == sampler.described()["window_samples"] >= 5
    assert began_ns - 10**6 <= min(at_ns) and max(at_ns) <= ended_ns + 10**6
    assert all("planted" in functions(found, row[5]) for line in found["samples"] for row in line["samples"][:-1])
    assert {row[4] for line in found["samples"] for row in line["samples"]} == {REST}
    assert sys.getswitchinterval() == INTERVAL_S


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize("each_ns", [1_000_000, 30_000_000])
def test_a_share_holds_at_any_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: str, each_ns: int) -> None:
    """A machine on which each sample costs a hundred times the usual, by what the sampler is told that it has cost."""
    monkeypatch.setenv("DDPROF_NATIVE", native)
    made: Any = StackSampler(timers(), lambda: True, print)
    made._run = lambda: None  # the test takes the turns
    made.start(tmp_path / "a.stacks.jsonl", {})

    def collect(duration_ns: int) -> None:
        dear.due += duration_ns / dear.period_ns
        count, dear.due = int(dear.due), dear.due % 1
        dear.samples = [(time.time_ns(), dear.period_ns, 0, REST, 9, place, None)] * count
        dear.spent_ns += count * each_ns
        now[0] += duration_ns

    place, now = (planted.__code__, 1), [time.monotonic_ns()]
    numbers: dict[str, Any] = dict.fromkeys(("period_ns", "spent_ns", "thread", "dropped", "due"), 0)
    answers = {"take": lambda: dear.samples, "stack_of": lambda frame: place, "end": lambda patience_ns: True}
    dear = SimpleNamespace(
        is_main=True, waits=False, collect=collect, **numbers, **answers
    )  # takes no time, and says that it has
    made._collector = dear
    monkeypatch.setattr("ddprof.capture.stacks.sampler.time.monotonic_ns", lambda: now[0])
    monkeypatch.setattr("ddprof.capture.stacks.sampler.time.thread_time_ns", lambda: 0)
    began_ns = now[0]
    for _ in range(60):
        made._turn(False)
        seconds = (now[0] - began_ns) / 1e9
        slowest = 0.2 * each_ns / 1e9  # a rank that hangs is seen in any case
        once_ns = WHOLE_RUN_SHARE * WHOLE_RUN_AHEAD_NS + EARLY_SHARE * (EARLY_NS + WHOLE_RUN_AHEAD_NS) + 3 * each_ns
        assert made.described()["frac"] <= WHOLE_RUN_SHARE + slowest + once_ns / seconds / 1e9
    assert made.described()["samples"] >= 3
    made.stop("exit")


def test_other_threads_are_counted_by_name(sampler: Any) -> None:
    ended = threading.Event()
    other = threading.Thread(target=ended.wait, name="loader of mine", daemon=True)
    other.start()
    planted_in_a_window(sampler)
    ended.set()
    other.join()
    found = stopped(sampler)
    names = [name for line in found["threads"] for name, _ in line["threads"]]
    number = names.index("loader of mine")
    assert not any(name.startswith("ddprof-") for name in names)
    rows = [row for line in found["counts"] for row in line["counts"] if row[2] == number]
    assert rows and functions(found, rows[0][0])[-1] == "Thread._bootstrap"[-len(functions(found, rows[0][0])[-1]) :]


def test_a_signal_leaves_where_each_thread_was(sampler: Any) -> None:
    found = stopped(sampler, "signal")
    ((thread, stack), *_) = [entry for entry in found["last"][0]["threads"] if entry[0] == 0]
    assert thread == 0 and "test_a_signal_leaves_where_each_thread_was" in " ".join(functions(found, stack))


def test_stopping_twice_and_before_the_start_is_nothing(tmp_path: Path) -> None:
    sampler = StackSampler(timers(), lambda: True, lambda text: None)
    sampler.stop("exit")
    sampler.window(True)
    assert sampler.described() is None and sampler.path is None
    sampler.start(tmp_path / "a.stacks.jsonl", {})
    sampler.stop("exit")
    size = (tmp_path / "a.stacks.jsonl").stat().st_size
    sampler.stop("exit")
    assert (tmp_path / "a.stacks.jsonl").stat().st_size == size


SCRIPT = """
import atexit, os, sys, threading, time
if "names" in sys.argv: atexit.register(lambda: print(*(thread.name for thread in threading.enumerate())))
from pathlib import Path
from ddprof.capture.stacks.sampler import StackSampler
class Tracker: thread, phase, index = 0, 5, 9
sampler = StackSampler(Tracker(), lambda: True, print, hz=200)
sampler.start(Path(sys.argv[1]), {})
sampler.window(True)
def spin(seconds=0.05):
    until = time.time() + seconds
    while time.time() < until or not sampler.described()["window_samples"]: sum(range(2000)), time.sleep(0.005)
spin()
"""
ENDS = {
    "returns": "",
    "os._exit": "os._exit(0)",
    "sys.exit in a thread": "threading.Thread(target=sys.exit).start()",
    "forks": "\npid = os.fork()\nif not pid: spin(); os._exit(0)\nos.waitpid(pid, 0)",
    "a daemon thread runs on": "threading.Thread(target=spin, args=[60], daemon=True).start()",
}


@pytest.mark.parametrize("native", ["1", "0"], ids=["in C", "in Python"])
@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_as_it_would(tmp_path: Path, end: str, native: str) -> None:
    """The sampler is not even stopped: a collector that asks without the GIL, with the interpreter gone, crashed."""
    path, names = tmp_path / "a.stacks.jsonl", ["names"] * (end == "returns")
    done = bare_run([sys.executable, "-c", SCRIPT + ENDS[end], str(path), *names], DDPROF_NATIVE=native)
    assert (done.returncode, done.stdout, done.stderr) == (0, "MainThread\n" if names else "", "")
    # What a window holds that was not closed is lost with its trace.
    assert ("begin" if end == "os._exit" else "samples") in lines(path)
    assert not names or lines(path)["end"][0]["reason"] == "exit"


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.stacks.jsonl"
    job = subprocess.Popen([sys.executable, "-c", SCRIPT + "time.sleep(600)", str(path)])
    planted(lambda: path.exists() and b'"samples"' in path.read_bytes())
    job.kill()
    job.wait()
    path.write_bytes(path.read_bytes().rpartition(b"\n")[0])  # what it was writing when it was killed is no whole line
    assert {"begin", "frames", "stacks", "threads", "samples", "counts"} >= set(lines(path)) >= {"begin", "samples"}

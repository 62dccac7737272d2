"""The rate that follows what sampling costs, stacks as numbers, and the side file they are appended to."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from unittest.mock import Mock

import pytest

from ddprof.capture.stacks import side_file
from ddprof.capture.stacks import table as tables
from ddprof.capture.stacks.collector import MAX_FRAMES, stack_of
from ddprof.capture.stacks.rate import SampleRate
from ddprof.capture.stacks.side_file import StackFile
from ddprof.capture.stacks.table import OUTERMOST, StackTable

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
    frames = "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(400))
    stack = stack_of(_made("f400", frames, "f0"))
    assert len(stack) == 2 * MAX_FRAMES
    assert stack[0].co_name == "f400" and stack[-2].co_name == f"f{401 - MAX_FRAMES}"


def test_full_tables_give_number_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_STACKS", 140)
    monkeypatch.setattr(tables, "MAX_FRAMES", 130)
    table = StackTable()
    numbers = [table.number(stack_of(_made(f"f{n}"))) for n in [*range(150), 0]]
    assert numbers[0] > 0 and numbers[-2] == 0
    assert len(table.new_stacks()[1]) <= 140 and len(table.new_frames()[1]) == 130 and numbers[-1] == numbers[0]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    file = StackFile(tmp_path / "a.stacks.jsonl", {"rank": 3})
    file.write({"kind": "frames", "frames": []})
    assert [line["kind"] for line in lines(file.path)] == ["begin", "frames"]
    assert lines(file.path)[0]["rank"] == 3
    file.close()
    file.write({"kind": "end"})
    assert len(lines(file.path)) == 2


def test_the_file_is_bounded_and_single_samples_before_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_file, "MAX_BYTES", 20_000)
    monkeypatch.setattr(side_file, "MAX_SAMPLE_BYTES", 5_000)
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    for _ in range(1_000):
        if file.holds_samples:
            file.write({"kind": "samples", "samples": [1, 2, 3]})
        file.write({"kind": "counts", "counts": [4, 5, 6]})
    kinds = [line["kind"] for line in lines(file.path)]
    assert file.path.stat().st_size <= 20_000 and file.full
    assert 50 < kinds.count("samples") < 200 < kinds.count("counts")


def test_a_full_disk_and_a_write_that_fails_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    monkeypatch.setattr(side_file, "free_bytes", lambda folder: 1 << 20)
    file.check_disk()
    file.write({"kind": "counts"})
    assert file.full == "1024 KiB free on the disk of the run folder" and len(lines(file.path)) == 1
    file = StackFile(tmp_path / "a.stacks.jsonl", {})
    monkeypatch.setattr(os, "write", Mock(side_effect=OSError(28, "No space left on device")))
    file.write({"kind": "counts"})
    monkeypatch.undo()
    file.write({"kind": "counts"})
    assert file.full == "No space left on device" and len(lines(file.path)) == 1

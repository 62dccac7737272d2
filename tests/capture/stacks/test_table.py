"""Stacks as numbers: the same stack has the same number, and there is a bound."""

import sys
from types import FrameType

import pytest

from ddprof.capture.stacks import table as tables
from ddprof.capture.stacks.collector import MAX_FRAMES, stack_of
from ddprof.capture.stacks.table import OUTERMOST, StackTable


def _deep(calls: int) -> FrameType:
    return sys._getframe() if calls == 0 else _deep(calls - 1)


def _made(name: str, before: str = "", called: str = "") -> FrameType:
    """The frame of a function of this name, which `called` calls."""
    space: dict[str, FrameType] = {}
    exec(f"import sys\n{before}def {name}():\n    return sys._getframe()\nframe = {called or name}()", space)
    return space["frame"]


def test_a_stack_is_told_by_its_frames_and_callers() -> None:
    table = StackTable()
    numbers = [table.number(stack_of(_made(name))) for name in ("first", "second", "first")]
    assert numbers[0] == numbers[2] != numbers[1]
    first_frame, frames = table.new_frames()
    first_stack, stacks = table.new_stacks()
    assert (first_frame, first_stack) == (0, 0)
    outer, frame = stacks[numbers[1]]
    assert frames[frame] == ("<string>", "second", 3)
    while outer != OUTERMOST:
        outer, frame = stacks[outer]
    assert frames[frame][0].endswith(("runpy>", ".py", "<string>", "pytest")) and table.new_stacks() == (
        len(stacks),
        [],
    )
    table.number(stack_of(_made("third")))
    told, new = table.new_frames()
    assert told == len(frames) and ("<string>", "third", 3) in new and not set(new) & set(frames)
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

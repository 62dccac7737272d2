"""Stacks as numbers: a growing tree of frames, in bounded memory."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from inspect import CO_GENERATOR
from types import CodeType
from typing import Any

from ddprof.capture.describe.stacks import is_library
from ddprof.capture.stacks.collector import Stack

MAX_FRAMES = 16_384  # distinct lines; a job that trains sees some hundred
MAX_STACKS = 65_536
_MAX_CODES = 16_384
_MAX_CHARACTERS = 300  # of a file's path and of a function's name
OUTERMOST = -1
FULL_FRAME = ("", "...", 0)  # number 0 of both tables: what came after they were full
Frame = tuple[str, str, int]  # file, function, line
_MAX_LINE_CHARACTERS = 160  # of a line of the script


class StackTable:
    """Numbers for stacks. `new_frames` and `new_stacks` return what was added since their last call."""

    def __init__(self) -> None:
        self._codes: dict[int, tuple[CodeType, str, str]] = {}  # by id, which is theirs as long as they are held here
        self._frames: dict[Frame, int] = {FULL_FRAME: 0}
        self._generators: list[int] = []  # frames of functions that yield, no comprehensions
        self._stacks: dict[tuple[int, int], int] = {(OUTERMOST, 0): 0}
        self._frames_told = self._stacks_told = 0

    def number(self, stack: Stack) -> int:
        """The number of a stack; 0 where the table is full."""
        outer = OUTERMOST
        for at in range(len(stack) - 2, -2, -2):
            frame = self._frame(stack[at], stack[at + 1])
            key = (outer, frame)
            number = self._stacks.get(key)
            if number is None:
                if len(self._stacks) >= MAX_STACKS:
                    return 0
                number = self._stacks[key] = len(self._stacks)
            outer = number
        return max(outer, 0)

    def new_frames(self) -> tuple[int, list[Frame], list[int]]:
        """(number of the first new frame, the new ones, numbers of generators' frames among them)."""
        first, self._frames_told = self._frames_told, len(self._frames)
        generators, self._generators = self._generators, []
        return first, _from(self._frames, first), generators

    def new_stacks(self) -> tuple[int, list[tuple[int, int]]]:
        """New stacks as (number of the calling stack, number of the innermost frame), and the first one's number."""
        first, self._stacks_told = self._stacks_told, len(self._stacks)
        return first, _from(self._stacks, first)

    def _frame(self, code: CodeType, line: int) -> int:
        held = self._codes.get(id(code))
        if held is None:
            held = (code, code.co_filename[-_MAX_CHARACTERS:], code.co_name[:_MAX_CHARACTERS])
            if len(self._codes) < _MAX_CODES:
                self._codes[id(code)] = held
        frame = (held[1], held[2], max(line, 0))  # -1: CPython knows no line of some instructions
        number = self._frames.get(frame)
        if number is None:
            if len(self._frames) >= MAX_FRAMES:
                return 0
            number = self._frames[frame] = len(self._frames)
            if code.co_flags & CO_GENERATOR and not code.co_name.startswith("<"):
                self._generators.append(number)
        return number


def _from(numbered: dict[Any, int], first: int) -> list[Any]:
    """Keys from a number on. They are in the order of their numbers, and usually none is new."""
    count = len(numbered) - first
    if not count:
        return []
    newest = reversed(numbered)
    keys = [next(newest) for _ in range(count)]
    keys.reverse()
    return keys


def source_lines(frames: Sequence[Frame]) -> list[str | None]:
    """Text of each frame's line, where readable; None for libraries. A call in C (`fcntl.flock`) has no frame."""
    return [None if not file or is_library(file) else _line_text(file, line) for file, _, line in frames]


def _line_text(file: str, line: int) -> str | None:
    return linecache.getline(file, line).strip()[:_MAX_LINE_CHARACTERS] or None

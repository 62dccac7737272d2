"""Totals of samples by stack, phase and thread, with increments; stacks and threads as numbers, in bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from inspect import CO_GENERATOR
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any

from ddprof.capture.describe.stacks import is_library, source_line
from ddprof.capture.files.step import REST
from ddprof.capture.stacks.collector import LATE_NS, Sample, Stack

# In place of a phase: before the third step, and after the last one, which are not like the others.
START_UP = REST + 1
NO_STEPS = -1  # in place of a step: the process has none
STEADY_STEP = 2  # as session._SETTLED_STEP
TRAINING = 0  # number of the training thread
MAX_THREADS = 64
_OURS = "ddprof-"
_MAX_NAME_CHARACTERS = 100  # of a thread
MAX_FRAMES = 16_384  # distinct lines; a job that trains sees some hundred
MAX_STACKS = 65_536
_MAX_CODES = 16_384
_MAX_CHARACTERS = 300  # of a file's path and of a function's name
OUTERMOST = -1
FULL_FRAME = ("", "...", 0)  # number 0 of both tables: what came after they were full
Frame = tuple[str, str, int]  # file, function, line


class Totals:
    """Counts since the last `take`: (stack, phase, thread) -> [samples, ns, ns of late answers, steps].

    Samples of the open step wait until it ends: what runs after the last one is of no step.

    A late answer is booked to the thread that gave it and to every other one that was seen then: the thread that held
    the GIL is among them, if it was not the answering one itself.
    """

    def __init__(self, table: StackTable, threads: ThreadNames) -> None:
        self._table = table
        self._threads = threads
        self._counts: dict[tuple[int, int, int], list[int]] = {}
        self._open: dict[tuple[int, int, int], list[int]] = {}  # the same of the open step
        self._open_step = NO_STEPS
        self.steps: list[int] = []  # the first and the last step of samples since the last `take`
        self.last: list[int] = []  # when the training thread was seen last, and its stack

    def book(self, sample: Sample) -> tuple[int, int]:
        """Add a sample of the training thread. Returns its stack's number and its phase."""
        at_ns, covers_ns, late_ns, phase, step, stack, beside = sample
        if NO_STEPS < step < STEADY_STEP:
            phase = START_UP
        if step != self._open_step:
            self._end_step(step)
        number = self._table.number(stack)
        late_ns = late_ns if late_ns > LATE_NS else 0
        self._add((number, phase, TRAINING), 1, covers_ns, late_ns)
        for ident, other in beside or ():
            thread = self._threads.number(ident)
            if thread is not None and late_ns:
                self._add((self._table.number(other), phase, thread), 0, 0, late_ns)
        self.steps = [min([step, *self.steps]), max([step, *self.steps])]
        self.last = [at_ns, number]
        return number, phase

    def book_beside(self, thread: int, number: int, phase: int, covers_ns: int) -> None:
        """Add a sample of another thread."""
        self._add((number, phase, thread), 1, covers_ns, 0)

    def take(self, is_last: bool = False) -> list[list[int]]:
        """[stack, phase, thread, samples, ns, late ns, steps] since the last call; without steps each call is one."""
        if self._open_step == NO_STEPS:
            self._end_step(NO_STEPS)
        elif is_last:
            self._end_step(NO_STEPS, START_UP)
        taken = [[*key, *values] for key, values in self._counts.items()]
        self._counts = {}
        self.steps = []
        return taken

    def _add(self, key: tuple[int, int, int], samples: int, covers_ns: int, late_ns: int) -> None:
        _count(self._open, key, (samples, covers_ns, late_ns))

    def _end_step(self, next_step: int, phase: int | None = None) -> None:
        """Count what waited, in this phase where one is given."""
        for (number, seen_in, thread), values in self._open.items():
            _count(self._counts, (number, seen_in if phase is None else phase, thread), (*values, 1))
        self._open, self._open_step = {}, next_step


def _count(counts: dict[tuple[int, int, int], list[int]], key: tuple[int, int, int], values: Sequence[int]) -> None:
    total = counts.setdefault(key, [0] * len(values))
    for at, value in enumerate(values):
        total[at] += value


class ThreadNames:
    """Numbers for threads as they appear, except ours. The number past the last stands for all further ones."""

    def __init__(self) -> None:
        self._numbers: dict[int, int | None] = {}
        self._named: list[tuple[str, int | None]] = []  # name and kernel id, by number
        self._told = 0

    def number(self, ident: int) -> int | None:
        """The number of a thread, by its `threading.get_ident()`; None for ours."""
        if ident not in self._numbers:
            self._numbers[ident] = self._add(ident)
        return self._numbers[ident]

    def new(self) -> tuple[int, list[tuple[str, int | None]]]:
        """New threads since the last call: number of the first, and (name, kernel id) of each."""
        first, self._told = self._told, len(self._named)
        return first, self._named[first:]

    def forget_ended(self) -> None:
        """Forget ended threads, whose ids new ones may reuse."""
        alive = {thread.ident for thread in threading.enumerate()}
        self._numbers = {
            ident: number for ident, number in self._numbers.items() if number == TRAINING or ident in alive
        }

    def cpu_ns(self) -> list[tuple[int, int]]:
        """(number, CPU time since its start) of each thread that the kernel still knows."""
        times = []
        for number, (_, kernel_id) in enumerate(self._named):
            with suppress(OSError, ValueError, IndexError):  # it has ended, or this kernel does not say
                text = Path(f"/proc/self/task/{kernel_id}/schedstat").read_bytes()
                times.append((number, int(text.split()[0])))
        return times

    def _add(self, ident: int) -> int | None:
        thread = threading._active.get(ident)  # type: ignore[attr-defined] # enumerate() takes a lock a thread may hold
        name = thread.name if thread is not None else "not started by Python"
        if name.startswith(_OURS):
            return None
        if len(self._named) >= MAX_THREADS:
            return MAX_THREADS
        self._named.append((name[:_MAX_NAME_CHARACTERS], getattr(thread, "native_id", None)))
        return len(self._named) - 1


class StackTable:
    """Numbers for stacks, a growing tree of frames. `new_frames` and `new_stacks`: added since their last call."""

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
    return [*islice(reversed(numbered), len(numbered) - first)][::-1]


def source_lines(frames: Sequence[Frame]) -> list[str | None]:
    """Text of each frame's line, where readable; None for libraries. A call in C (`fcntl.flock`) has no frame."""
    return [None if not file or is_library(file) else source_line(file, line) or None for file, _, line in frames]

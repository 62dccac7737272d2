"""Totals of samples by stack, phase and thread, with increments; threads by number and name."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from ddprof.capture.files.step import REST
from ddprof.capture.stacks.collector import LATE_NS, Sample
from ddprof.capture.stacks.table import StackTable

# In place of a phase: before the third step, and after the last one, which are not like the others.
START_UP = REST + 1
NO_STEPS = -1  # in place of a step: the process has none
STEADY_STEP = 2  # as session._SETTLED_STEP
TRAINING = 0  # number of the training thread
MAX_THREADS = 64
_OURS = "ddprof-"
_MAX_CHARACTERS = 100


class Totals:
    """Counts since the last `take`: (stack, phase, thread) -> [samples, ns, ns of late answers].

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
        """[stack, phase, thread, samples, ns, late ns] since the last call."""
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
            _count(self._counts, (number, seen_in if phase is None else phase, thread), values)
        self._open, self._open_step = {}, next_step


def _count(counts: dict[tuple[int, int, int], list[int]], key: tuple[int, int, int], values: Sequence[int]) -> None:
    total = counts.setdefault(key, [0, 0, 0])
    for at, value in enumerate(values):
        total[at] += value


class ThreadNames:
    """Numbers for threads as they appear, except ours. The number past the last stands for all further ones."""

    def __init__(self) -> None:
        self._numbers: dict[int, int | None] = {}
        self._ids: list[int | None] = []  # the kernel's, by number
        self._named: list[tuple[str, int | None]] = []
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
        for number, kernel_id in enumerate(self._ids):
            try:
                text = Path(f"/proc/self/task/{kernel_id}/schedstat").read_bytes()
                times.append((number, int(text.split()[0])))
            except (OSError, ValueError, IndexError):
                continue  # it has ended, or this kernel does not say
        return times

    def _add(self, ident: int) -> int | None:
        thread = threading._active.get(ident)  # type: ignore[attr-defined] # enumerate() takes a lock a thread may hold
        name = thread.name if thread is not None else "not started by Python"
        if name.startswith(_OURS):
            return None
        if len(self._named) >= MAX_THREADS:
            return MAX_THREADS
        kernel_id = getattr(thread, "native_id", None)
        self._named.append((name[:_MAX_CHARACTERS], kernel_id))
        self._ids.append(kernel_id)
        return len(self._named) - 1

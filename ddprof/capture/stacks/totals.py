"""What samples add up to: counts by stack, phase and thread, handed out as they grow."""

from __future__ import annotations

from ddprof.capture.files.step import REST
from ddprof.capture.stacks.collector import LATE_NS, Sample
from ddprof.capture.stacks.table import StackTable
from ddprof.capture.stacks.threads import TRAINING, ThreadNames

START_UP = REST + 1  # in place of a phase: before the third step, which is not like the others
STEADY_STEP = 2  # as session._SETTLED_STEP


class Totals:
    """Counts since they were handed out last: (stack, phase, thread) -> [samples, ns, ns of late answers].

    A late answer is booked to the thread that gave it and to every other one that was seen then: the thread that held
    the GIL is among them, if it was not the answering one itself.
    """

    def __init__(self, table: StackTable, threads: ThreadNames) -> None:
        self._table = table
        self._threads = threads
        self._counts: dict[tuple[int, int, int], list[int]] = {}
        self.steps: list[int] = []  # the first and the last step of what is counted
        self.last: list[int] = []  # when the training thread was seen last, and its stack

    def book(self, sample: Sample) -> tuple[int, int]:
        """Add a sample of the training thread. Returns its stack's number and its phase."""
        at_ns, covers_ns, late_ns, phase, step, stack, beside = sample
        if step < STEADY_STEP:
            phase = START_UP
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
        """Add what another thread was seen in."""
        self._add((number, phase, thread), 1, covers_ns, 0)

    def take(self) -> list[list[int]]:
        """[stack, phase, thread, samples, ns, late ns], handed out once."""
        taken = [[*key, *values] for key, values in self._counts.items()]
        self._counts = {}
        self.steps = []
        return taken

    def _add(self, key: tuple[int, int, int], samples: int, covers_ns: int, late_ns: int) -> None:
        values = self._counts.get(key)
        if values is None:
            values = self._counts[key] = [0, 0, 0]
        values[0] += samples
        values[1] += covers_ns
        values[2] += late_ns

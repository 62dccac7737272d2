"""The sampling thread: its rate, its writes, and its cost.

Over the whole run it samples rarely and keeps counts; in trace windows it samples often and keeps each sample with its
time. Its cost is measured throughout, and the rate follows (`rate`).

The side file (docs/run-folder.md) is appended lines of JSON up to a size limit. A line is in the kernel's hands once it
is written: a process that is killed loses what it has not written yet.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddprof.capture.describe.stacks import current_frames
from ddprof.capture.files.step import PHASE_NAMES
from ddprof.capture.files.storage import free_bytes, open_new
from ddprof.capture.stacks import rate as rates
from ddprof.capture.stacks.collector import Sample, ThreadCollector, TrainingThread, make_collector
from ddprof.capture.stacks.totals import NO_STEPS, STEADY_STEP, TRAINING, StackTable, ThreadNames, Totals, source_lines
from ddprof.untrusted.secrets import masked_data

_WINDOW_TURN_NS = 200_000_000  # between two looks at what samples cost, while a window is open
_TURN_NS = 2_000_000_000  # the same outside windows: also how often the other threads are looked at
# Samples of a window wait so long until they are booked: most windows have closed by then, and are not slowed by it.
_WINDOW_FLUSH_NS = 2_000_000_000
_FIRST_SAMPLES = 2  # in the first turn at a rate: what they cost on this machine is learnt before more are taken
# From one line of counts to the next, in the first seconds and in the first minutes: loader workers of a short job are
# ended by SIGTERM, after seconds, and say nothing at their end.
_FIRST_FLUSH_NS = 250_000_000
_FLUSH_NS = 2_000_000_000
_LAST_FLUSH_NS = 60_000_000_000  # the longest time between two lines
_OF_THE_RUN = 100  # in between: a process that is killed loses at most one part in so many of what was sampled
_FLUSH_SLACK_NS = 100_000_000  # no turn is as long as it was to be
_JOIN_S = 2.0
_END_NS = 10_000_000_000  # for our thread to let go of the interpreter: as long as another thread keeps the GIL
_MAX_PATH_ENTRIES = 64  # of sys.path
_SHORT_INTERVAL_S = 0.0002  # as HURRY_US of native/switching.h


class StackSampler:
    """Sampler of one process; can be started once. Continues while `active` is true. Only `start` raises: OSError."""

    def __init__(
        self,
        tracker: TrainingThread,
        active: Callable[[], bool],
        note: Callable[[str], object],
        hz: float = rates.WHOLE_RUN_HZ,
        *,
        with_source: bool = False,
    ) -> None:
        self._tracker = tracker
        self._active = active
        self._note = note
        self._with_source = with_source
        # What is imported and compiled at the start costs us as well: it is kept out of what the run may cost.
        self._starting = rates.SampleRate(rates.START_UP_HZ, rates.WHOLE_RUN_SHARE, rates.WHOLE_RUN_AHEAD_NS)
        self._early = rates.SampleRate(rates.EARLY_TIMES * hz, rates.EARLY_SHARE, rates.WHOLE_RUN_AHEAD_NS)
        self._whole_run = rates.SampleRate(hz, rates.WHOLE_RUN_SHARE, rates.WHOLE_RUN_AHEAD_NS)
        self._windows = rates.SampleRate(rates.WINDOW_HZ, rates.WINDOW_SHARE, rates.WINDOW_AHEAD_NS)
        self.path: Path | None = None  # of the file that is written, None before the start
        self._thread: threading.Thread | None = None
        self._stopping = self._in_window = False
        self._lock = threading.Lock()  # of what is counted: the last flush may come from another thread
        self._began_ns = self._cpu_ns = 0
        self._held: list[Sample] = []  # of the window that is open, not booked yet
        self._intervals_s: tuple[float, float] | None = None  # before a window, and in it

    # ------------------------------------------------------------------ from the training thread

    def start(self, path: Path, about: dict[str, Any]) -> None:
        """Begin to write a file with a head of `about`. Raises OSError where it cannot be created."""
        about = {**about, "started_ns": time.time_ns(), "phases": [*PHASE_NAMES, "rest", "start-up"]}
        about["path"] = [os.path.abspath(entry) for entry in sys.path[:_MAX_PATH_ENTRIES]]
        self._file = StackFile(path, about)
        self.path = path
        if self._file.full:
            self._note(f"stacks are not written: {self._file.full}")
        self._table, self._threads = StackTable(), ThreadNames()
        self._totals = Totals(self._table, self._threads)
        self._collector = make_collector(self._tracker)
        self._follow_training_thread()
        self._threads.number(self._collector.thread)
        self._began_ns = self._flushed_ns = self._beside_ns = time.monotonic_ns()
        self._counted_from_ns = time.time_ns()
        self._thread = threading.Thread(target=self._run, name="ddprof-stacks", daemon=True)
        self._thread.start()
        # What the collector asks of an interpreter that is gone ends the process: that is not left to the owner.
        atexit.register(self._stop_in, os.getpid())

    def window(self, is_open: bool) -> None:
        """Note that a trace window opens or closes."""
        if self._thread is None or self._in_window == is_open:
            return
        self._in_window = is_open
        self._shorten_interval(is_open)
        self._collector.wake()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend sampling while the profiler starts, stops or writes, which keeps the GIL."""
        collector = self._collector if self._thread is not None else None
        if collector is None:
            yield
            return
        collector.paused = True
        try:
            yield
        finally:
            collector.paused = False

    def stop(self, reason: str) -> None:
        """Write everything pending, and end. Idempotent; `reason` as in the sidecar."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self._stop_in)
        self._stopping = True
        self._shorten_interval(False)
        self._collector.end(_END_NS)
        if thread is not threading.current_thread():
            thread.join(_JOIN_S)
        if self._lock.acquire(timeout=_JOIN_S):
            try:
                if reason in ("watchdog", "signal"):
                    self._write_last(reason)
                self._book_held()
                self._flush(is_last=True)
                self._file.write({"kind": "end", "at_ns": time.time_ns(), "reason": reason})
                self._file.close()
            finally:
                self._lock.release()

    def _stop_in(self, pid: int) -> None:
        """Stop before the interpreter ends; not in a forked child, which inherits the call."""
        if os.getpid() == pid:
            self.stop("exit")

    def abandon(self) -> None:
        """Forget the thread after a fork: the child has none, and writes nothing more here."""
        if self._thread is not None:
            self._thread = None
            self._collector.abandon()

    def described(self) -> dict[str, Any] | None:
        """Description for the sidecar; costs as shares of the elapsed time. None where nothing was sampled."""
        if self.path is None:
            return None
        cost_ns = self._early.cost_ns + self._whole_run.cost_ns
        lasted_ns = self._early.lasted_ns + self._whole_run.lasted_ns
        return {
            "file": self.path.name,
            "collector": "thread" if isinstance(self._collector, ThreadCollector) else "native",
            "samples": self._early.samples + self._whole_run.samples,
            "window_samples": self._windows.samples,
            "start_up_samples": self._starting.samples,
            "dropped": self._collector.dropped,
            "held_ns": self._collector.spent_ns,
            "cpu_ns": self._cpu_ns,
            "frac": cost_ns / lasted_ns if lasted_ns else None,
            "window_frac": self._windows.cost_share,
            "start_up_ns": self._starting.cost_ns,
        }

    def _shorten_interval(self, wanted: bool) -> None:
        """Shorten the interpreter's switch interval in a window where the collector has to wait for the GIL."""
        if not self._collector.waits:
            return
        now_s = sys.getswitchinterval()
        if wanted and now_s > _SHORT_INTERVAL_S:
            sys.setswitchinterval(_SHORT_INTERVAL_S)
            self._intervals_s = now_s, sys.getswitchinterval()
        elif not wanted and self._intervals_s and now_s == self._intervals_s[1]:  # the script has not set it meanwhile
            sys.setswitchinterval(self._intervals_s[0])

    # ------------------------------------------------------------------ on our thread

    def _run(self) -> None:
        try:
            while not self._stopping and self._active() and not sys.is_finalizing():
                self._follow_training_thread()
                self._turn(self._in_window)
        except (OSError, RuntimeError, ValueError, MemoryError) as error:
            self._note(f"stacks are no longer sampled: {type(error).__name__}: {error}")

    def _turn(self, in_window: bool) -> None:
        """Sample for a while, count the samples, and write when due. A turn costs the same however few there are."""
        collector, rate = self._collector, self._rate(in_window)
        began_ns, began_cpu_ns, began_spent_ns = time.monotonic_ns(), time.thread_time_ns(), collector.spent_ns
        collector.period_ns = rate.period_ns
        flush_ns = _WINDOW_FLUSH_NS if in_window else self._flush_period_ns()
        longest_ns = _WINDOW_TURN_NS if in_window else min(flush_ns, _TURN_NS)
        collector.collect(min(longest_ns, _FIRST_SAMPLES * rate.period_ns) if rate.is_new else longest_ns)
        taken_cpu_ns, taking_ns = time.thread_time_ns(), collector.spent_ns - began_spent_ns
        with self._lock:
            samples = collector.take()
            is_due = time.monotonic_ns() - self._flushed_ns >= flush_ns - _FLUSH_SLACK_NS
            is_other = in_window != self._in_window  # a window has opened or closed
            if in_window:
                self._held += samples
                if is_due or is_other:
                    self._book_held()
            else:
                self._count(samples, in_window)
            if is_due or is_other:
                self._flush()
        taking_ns += taken_cpu_ns - began_cpu_ns
        self._cpu_ns += time.thread_time_ns() - began_cpu_ns
        rate.measured(len(samples), taking_ns, time.thread_time_ns() - taken_cpu_ns, time.monotonic_ns() - began_ns)

    def _rate(self, in_window: bool) -> rates.SampleRate:
        if in_window:
            self._windows.expect(self._early)
            return self._windows
        if NO_STEPS < self._tracker.index < STEADY_STEP:
            return self._starting
        if self._early.lasted_ns < rates.EARLY_NS:
            return self._early
        self._whole_run.expect(self._early)
        return self._whole_run

    def _flush_period_ns(self) -> int:
        lived_ns = time.monotonic_ns() - self._began_ns
        early_ns = min(max(_FIRST_FLUSH_NS, lived_ns // 2), _FLUSH_NS)
        return min(max(early_ns, lived_ns // _OF_THE_RUN), _LAST_FLUSH_NS)

    def _follow_training_thread(self) -> None:
        main = threading.main_thread().ident or 0
        self._collector.thread = self._tracker.thread or main
        self._collector.is_main = self._collector.thread == main

    def _book_held(self) -> None:
        """Book the window's pending samples."""
        held, self._held = self._held, []
        if held:
            self._count(held, True)

    def _count(self, samples: list[Sample], in_window: bool) -> None:
        file = self._file
        booked = [(sample, self._totals.book(sample)) for sample in samples]
        self._count_beside()
        if in_window and booked and file.holds_samples:
            self._write_names()
            first_ns, first_step = booked[0][0][0], booked[0][0][4]
            rows = [
                [sample[0] - first_ns, sample[1], sample[2], sample[4] - first_step, phase, number]
                for sample, (number, phase) in booked
            ]
            period_ns = self._collector.period_ns
            file.write(
                {"kind": "samples", "at_ns": first_ns, "step": first_step, "period_ns": period_ns, "samples": rows}
            )

    def _count_beside(self) -> None:
        """Count the other threads' stacks for the time since the last look."""
        now_ns = time.monotonic_ns()
        covers_ns, self._beside_ns = now_ns - self._beside_ns, now_ns
        phase = self._tracker.phase
        for ident, frame in current_frames().items():
            thread = self._threads.number(ident)
            if thread is not None and ident != self._collector.thread:
                stack = self._table.number(self._collector.stack_of(frame))
                self._totals.book_beside(thread, stack, phase, covers_ns)

    # ------------------------------------------------------------------ what is written

    def _flush(self, is_last: bool = False) -> None:
        file = self._file
        was_full = file.full is not None
        file.check_disk()
        self._write_names()
        now_ns, steps, counts = time.time_ns(), self._totals.steps, self._totals.take(is_last)
        if counts or steps:  # samples of an open step count later, and say now where the rank stands
            about = {"from_ns": self._counted_from_ns, "to_ns": now_ns, "steps": steps, "last": self._totals.last}
            file.write({"kind": "counts", **about, "counts": counts, "cpu_ns": self._threads.cpu_ns()})
        self._counted_from_ns, self._flushed_ns = now_ns, time.monotonic_ns()
        self._threads.forget_ended()
        if file.full and not was_full:
            self._note(f"stacks are no longer written: {file.full}")

    def _write_names(self) -> None:
        """Write frames, stacks and threads that no line has named yet."""
        first_frame, frames, generators = self._table.new_frames()
        if frames:
            self._file.write({"kind": "frames", "from": first_frame, "frames": frames, "generators": generators})
        for kind, (first, new) in (("stacks", self._table.new_stacks()), ("threads", self._threads.new())):
            if new:
                self._file.write({"kind": kind, "from": first, kind: new})
        if frames and self._with_source:
            self._file.write({"kind": "sources", "from": first_frame, "sources": source_lines(frames)})

    def _write_last(self, reason: str) -> None:
        """Write every thread's stack as a signal ends the process, which shows where a rank hung."""
        threads = []
        for ident, frame in current_frames().items():
            thread = TRAINING if ident == self._collector.thread else self._threads.number(ident)
            if thread is not None:
                threads.append([thread, self._table.number(self._collector.stack_of(frame))])
        self._write_names()
        phase, step = self._tracker.phase, self._tracker.index
        about = {"at_ns": time.time_ns(), "reason": reason, "phase": phase, "step": step}
        self._file.write({"kind": "last", **about, "threads": threads})


SCHEMA = "ddprof.stacks/1"
MAX_BYTES = 16 << 20
MAX_SAMPLE_BYTES = 8 << 20  # of them for single samples of windows
_MIN_FREE_BYTES = 16 << 20  # as for traces: the job's own files come first


class StackFile:
    """The side file of samples. Raises OSError where it cannot be made; later, a failed write ends it (`full`)."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self.full: str | None = None  # why nothing is written any more
        self.holds_samples = True  # there is room for single samples
        self._written = self._of_samples = 0
        self._descriptor = open_new(path)
        self.write({"kind": "begin", "schema": SCHEMA, **about})

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        if self.full is not None:
            return
        data = json.dumps(masked_data(line), separators=(",", ":")).encode() + b"\n"
        if self._written + len(data) > MAX_BYTES:
            self.full = f"it has reached {MAX_BYTES >> 20} MiB"
            return
        try:
            if os.write(self._descriptor, data) < len(data):
                self.full = "the disk of the run folder is full"
        except OSError as error:
            self.full = error.strerror or str(error)
        self._written += len(data)
        if line["kind"] == "samples":
            self._of_samples += len(data)
            self.holds_samples = self._of_samples < MAX_SAMPLE_BYTES

    def check_disk(self) -> None:
        """End the file before it fills the disk."""
        free = free_bytes(self.path.parent)
        if free is not None and free < _MIN_FREE_BYTES:
            self.full = self.full or f"{free >> 10} KiB free on the disk of the run folder"

    def close(self) -> None:
        """Stop writing."""
        self.full = self.full or "closed"
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

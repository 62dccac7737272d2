"""Flushes capture on SIGTERM and SIGHUP, even while the training thread is blocked in a collective.

A Python signal handler runs only when the main thread returns to the interpreter: with a handler alone, a hanging rank
would survive a signal that kills it without ddprof. So Python's wakeup descriptor wakes a watchdog thread, which
flushes and then lets the signal kill the process. A handler of the script's own stays in place and in charge.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ddprof.capture.files.last_resort import LastResort

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_MAIN_THREAD_S = 0.5  # how long the main thread may take to reach its handler before it counts as blocked
_FLUSH_S = 15.0  # launchers send SIGKILL 30 s after SIGTERM


class Watchdog:
    """Flushes a rank's data at its end, once it is known to be a rank. Only the first `flush(reason)` writes."""

    def __init__(self, flush: Callable[[str], object]) -> None:
        self._flush = flush
        self._flushing = False
        self._libc = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
        self._armed: set[int] = set()
        self._pipe: tuple[int, int] | None = None
        self._reached = threading.Event()
        self._pending: int | None = None
        self.last_resort = LastResort()

    def arm(self, threads_path: Path) -> None:
        """Handle signals without a handler, and write to `threads_path` where a rank cannot answer otherwise.

        Does nothing off the main thread, or where another wakeup descriptor is in use.
        """
        with suppress(OSError):
            self.last_resort.arm(threads_path)
        if self._libc is None or self._armed or threading.current_thread() is not threading.main_thread():
            return
        free = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
        if not free:
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if previous != -1:
            signal.set_wakeup_fd(previous)
            os.close(reader)
            os.close(writer)
            return
        self._pipe = (reader, writer)
        threading.Thread(target=self._watch, args=(reader,), name="ddprof-watchdog", daemon=True).start()
        for number in free:
            signal.signal(number, self._handle)
            self._armed.add(number)

    def disarm_in_child(self) -> None:
        """Detach after a fork: the descriptor is the parent's, and a byte in it would wake the parent."""
        with suppress(OSError):
            self.last_resort.abandon()
        if self._pipe is None:
            return
        signal.set_wakeup_fd(-1)
        for number in self._armed:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
        for descriptor in self._pipe:
            os.close(descriptor)
        self._pipe = None
        self._armed = set()
        self._reached = threading.Event()
        self._pending = None
        self._flushing = False

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Delay signals during a flush, whoever began it, until it ends: a handler that raises would cut it short."""
        if self._flushing:  # as part of another
            yield
            return
        self._flushing = True
        late: list[int] = []
        held = self._hold(late)
        try:
            yield
        finally:
            self._flushing = False
            for number, handler in held.items():
                signal.signal(number, handler)
            if self._pending is not None:
                self._die(self._pending)
            for came in late:
                os.kill(os.getpid(), came)

    def _hold(self, late: list[int]) -> dict[int, Callable[..., Any]]:
        """The script's and its libraries' handlers, all of which may raise (torch's of SIGCHLD does as its loader's
        workers are ended), in whose place signals are put into `late`; {} off the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            return {}
        handlers = [(number, signal.getsignal(number)) for number in signal.valid_signals()]
        held: dict[int, Callable[..., Any]] = {
            number: handler for number, handler in handlers if callable(handler) and handler != self._handle
        }
        for number in held:
            signal.signal(number, lambda number, _: late.append(number))
        return held

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal on the main thread."""
        self._reached.set()
        composed = signal.getsignal(number) != self._handle  # the script's own handler called ours
        self._pending = None if composed else number  # once the flush has ended: this one, or that under way
        if self._flushing:
            return
        self._flush("signal")
        if not composed:
            self._die(number)

    def _watch(self, reader: int) -> None:
        """Read signal numbers, one byte each, on the watchdog thread."""
        while True:
            try:
                data = os.read(reader, 1)
            except OSError:
                return
            if not data:
                return
            number = data[0]
            if number in self._armed and signal.getsignal(number) == self._handle:
                if self._reached.wait(_MAIN_THREAD_S):
                    continue
                flush = threading.Thread(target=self._flush, args=("watchdog",), daemon=True)
                flush.start()
                flush.join(_FLUSH_S)
                self._die(number)

    def _die(self, number: int) -> None:
        """End as the signal's default action would: by the signal, not by an exit code."""
        if self._libc is None or sys.is_finalizing():
            return
        # signal.signal() works on the main thread only, and that thread may be blocked: ask the C library.
        self._libc.signal(number, 0)
        os.kill(os.getpid(), number)

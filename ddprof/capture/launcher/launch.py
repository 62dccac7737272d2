"""Runs the user's command as a child, as transparently as a parent can: same terminal, signals and exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from ddprof.capture.guard import say

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_KERNEL = 0x80  # si_code of a signal the terminal sent to the whole foreground group: the child has it already
_TICK_S = 0.5


def run_child(command: Sequence[str], environment: Mapping[str, str], on_tick: Callable[[], None] | None = None) -> int:
    """Run `command`, forward signals sent to us, call `on_tick` about twice a second, and return the exit code.

    A child killed by signal n gives 128 + n, one that cannot be started 127 (not found) or 126 (not executable), as
    in a shell.
    """
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        try:
            child = subprocess.Popen(
                list(command),
                env=dict(environment),
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
        except FileNotFoundError:
            return 127
        except PermissionError:
            return 126
        return _wait(child, watched, on_tick)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(child: subprocess.Popen[bytes], watched: set[signal.Signals], on_tick: Callable[[], None] | None) -> int:
    next_tick = time.monotonic() + _TICK_S
    while True:
        status = child.poll()
        if status is not None:
            return 128 - status if status < 0 else status
        info = signal.sigtimedwait(watched, max(next_tick - time.monotonic(), 0.01))
        if info is not None and info.si_signo != signal.SIGCHLD and info.si_code != _FROM_KERNEL:
            _send(child, info.si_signo)
        if time.monotonic() >= next_tick:
            next_tick = time.monotonic() + _TICK_S
            on_tick = _ticked(on_tick)


def _ticked(on_tick: Callable[[], None] | None) -> Callable[[], None] | None:
    """Call `on_tick` and return it; None where it could not write (full disk), so that it is not called again."""
    if on_tick is not None:
        try:
            on_tick()
        except OSError as error:
            say(f"watching ends, the job goes on: {error}")
            return None
    return on_tick


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.kill(child.pid, number)
    except ProcessLookupError:
        return

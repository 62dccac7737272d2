"""The answer of a rank that cannot run Python, because a thread holds the interpreter's lock inside C code.

faulthandler writes the stacks of all threads from a signal's handler, in C and without the lock. The signal is a
real-time one that nothing uses; where the script, or a library of it, has a handler for it, that one stays and there is
no such answer. Whoever sends it looks first whether the rank still handles it (`handles`): else it would end the rank.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import threading
from pathlib import Path

from ddprof.capture.files.storage import open_new, text_of

_BELOW_LAST = 7  # real-time signals are taken from both ends; no library is known that takes this one


def answer_signal() -> int | None:
    """The number of the signal; None on platforms without one."""
    last = getattr(signal, "SIGRTMAX", None)
    return None if last is None or not hasattr(faulthandler, "register") else int(last) - _BELOW_LAST


def handles(pid: int | str, number: int) -> bool:
    """True where a process of this host handles a signal; False where the kernel does not tell."""
    return is_stated(pid, "SigCgt", number)


def is_stated(pid: int | str, signals: str, number: int) -> bool:
    """True where a signal is among those of a process that the kernel lists under a name (proc(5), status)."""
    stated = re.search(rf"^{signals}:\s*([0-9a-f]+)$", text_of(f"/proc/{pid}/status"), re.MULTILINE)
    return stated is not None and bool(int(stated[1], 16) >> (number - 1) & 1)


class LastResort:
    """One per process. `arm` and `disarm` raise OSError where the file cannot be made or removed."""

    def __init__(self) -> None:
        self._armed: tuple[int, Path, int] | None = None  # signal, file, descriptor

    def arm(self, path: Path) -> None:
        """Write the stacks to this file at every signal, unless it is in use. Does nothing off the main thread."""
        self.disarm()
        number = answer_signal()
        if number is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN) or handles("self", number):
            return
        descriptor = open_new(path)
        signal.signal(number, signal.SIG_IGN)  # what it is again once faulthandler has let go: one too late is nothing
        faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
        self._armed = number, path, descriptor

    def disarm(self) -> None:
        """Release the signal and delete an empty file."""
        path = self.abandon()
        if path is not None:
            remove_empty(path)

    def abandon(self) -> Path | None:
        """Release the signal and leave the file, which after a fork is the parent's. Returns it, None without one."""
        armed, self._armed = self._armed, None
        if armed is None:
            return None
        number, path, descriptor = armed
        faulthandler.unregister(number)
        os.close(descriptor)
        return path


def remove_empty(path: Path) -> None:
    """Delete a file if it is empty. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not path.stat().st_size:
            path.unlink()

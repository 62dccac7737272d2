"""Detection of signals sent to the whole process group rather than to this process alone.

The kernel reports a signal's sender, but not its addressees. So a helper process in the group only holds its signals
back: one sent to the group is pending there (proc(5), ShdPnd), one sent to this process alone is not.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from ddprof.capture.files.last_resort import is_stated

_SETTLE_S = 0.02  # a sender goes through the members of a group one after another, within microseconds
_PATIENCE_S = 1.0  # for the helper's answer


class GroupWitness:
    """The helper process; create it with signals blocked, before any thread. Without /proc, or dead, it sees none."""

    def __init__(self, watched: Iterable[signal.Signals]) -> None:
        self._watched = frozenset(watched)
        ours, theirs = os.pipe(), os.pipe()  # to the witness, from it
        self._pid = _forked()
        if self._pid == 0:
            os.close(ours[1])
            os.close(theirs[0])
            _hold(ours[0], theirs[1], self._watched)
        os.close(ours[0])
        os.close(theirs[1])
        self._ask, self._answer = ours[1], theirs[0]

    def saw(self, number: int) -> bool:
        """True where the group too got the signal that this process just received; each counts once."""
        if self._pid <= 0:
            return False
        time.sleep(_SETTLE_S)
        if not is_stated(self._pid, "ShdPnd", number):
            return False
        with suppress(OSError):
            os.write(self._ask, bytes([number]))
            if select.select([self._answer], [], [], _PATIENCE_S)[0]:
                os.read(self._answer, 1)
        return True

    def end(self) -> None:
        """Release the witness."""
        os.close(self._ask)
        os.close(self._answer)
        if self._pid > 0:
            with suppress(OSError):
                os.waitpid(self._pid, 0)


def _forked() -> int:
    """The witness's process id, 0 inside it, -1 where it could not be forked."""
    if not os.path.exists("/proc/self/status"):
        return -1
    try:
        return os.fork()
    except OSError:
        return -1


def _hold(asked: int, answer: int, watched: frozenset[signal.Signals]) -> None:
    """Run the helper: report pending signals on request, and end with its parent."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        while request := os.read(asked, 1):  # one signal: another may have come since
            signal.sigtimedwait({request[0]}, 0)
            os.write(answer, b".")
    finally:
        os._exit(0)

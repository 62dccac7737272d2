"""Supervision of one trial's processes, so that none of them outlives it, or `ddprof tune`.

    keeper.py TIMEOUT_S LOG COMMAND...

A process of its own session: Ctrl-C in the terminal does not reach the trial past `ddprof tune`. Whatever the trial
starts, in sessions of its own too (torchrun does so), stays below this process, which adopts orphans. It ends the trial
when its standard input ends, as it does however `ddprof tune` ends, or when the time is over; it answers by one line of
JSON. Standard library only, run by its path: it starts in a moment.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

_SUBREAPER, _PARENT_DEATH = 36, 1  # PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG of linux/prctl.h
_LOOK_S = 0.05
_TERM_S = 10.0  # for the launcher to end its ranks, and for capture to write
_LEFT_S = 3.0  # for what is still there after it
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Family:
    """The trial's first process and all its descendants."""

    def __init__(self, command: list[str], log: str) -> None:
        """Start the process. Raises OSError where it cannot be started."""
        self._prctl = _prctl()
        self._prctl(_SUBREAPER, 1)
        with open(log, "ab") as output:
            self._root = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                preexec_fn=self._before_exec,
            )  # fmt: skip
        self.code: int | None = None  # of the first process, once it has ended

    def reap(self) -> None:
        """Note the processes that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._root.pid:
                self.code = os.waitstatus_to_exitcode(status)

    def end(self) -> int:
        """End remaining processes, gently first. Returns the number left when the first one had ended."""
        if self.code is None:
            _send(self._root.pid, signal.SIGTERM)
            self._until(lambda: self.code is not None, _TERM_S)
        self._until(lambda: not self._living(), _LEFT_S)
        left = len(self._living())
        for number, patience_s in ((signal.SIGTERM, _LEFT_S), (signal.SIGKILL, _TERM_S)):
            if self._living():
                self._send_all(number)
                self._until(lambda: not self._living(), patience_s, again=number)
        return left

    def _send_all(self, number: signal.Signals) -> None:
        for pid in self._living():
            _send(pid, number)

    def _living(self) -> list[int]:
        self.reap()
        return _descendants(os.getpid()) or ([self._root.pid] if self.code is None else [])

    def _until(self, is_so: Callable[[], bool], longest_s: float, again: signal.Signals | None = None) -> None:
        end_s = time.monotonic() + longest_s
        while time.monotonic() < end_s:
            self.reap()
            if is_so():
                return
            if again is signal.SIGKILL:
                self._send_all(again)  # a process may have been made since
            time.sleep(_LOOK_S)

    def _before_exec(self) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        self._prctl(_PARENT_DEATH, signal.SIGTERM)  # also where this process is killed


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _prctl() -> Callable[[int, int], object]:
    try:
        call = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # no Linux: what leaves its process group is not followed
        return lambda option, value: None
    return lambda option, value: call(option, value, 0, 0, 0)


def _descendants(root: int) -> list[int]:
    """Living descendants of a process, from /proc; [] where there is none."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(name))
    descendants: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants


def main() -> None:
    """Run the command to its end, or until told to stop."""
    timeout_s, log, *command = sys.argv[1:]
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    end_s = time.monotonic() + float(timeout_s)
    family = Family(command, log)
    why = "exit"
    while family.code is None:
        readable, _, _ = select.select([0], [], [], _LOOK_S)
        family.reap()
        if readable and not os.read(0, 64):
            why = "told"
            break
        if time.monotonic() > end_s:
            why = "timeout"
            break
    left = family.end()
    try:
        print(json.dumps({"why": why, "code": family.code, "left": left}), flush=True)
    except BrokenPipeError:
        os._exit(0)  # nobody is there to hear it


if __name__ == "__main__":
    main()

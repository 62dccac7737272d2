"""Runs the user's command as a child, as transparently as a parent can: same terminal, signals and exit code."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ddprof.capture.files.last_resort import is_stated
from ddprof.capture.guard import say
from ddprof.capture.launcher.chores import chore

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_KERNEL = 0x80  # si_code of a signal of the terminal: of a key, to the foreground group; of its end, to its leader
_TICK_S = 0.5
_LAST_TICK_S = 5.0  # how long a tick that is under way may take when the job has ended: the file system may hang
_NOT_FOUND = 127  # exit codes of a shell
_NOT_EXECUTABLE = 126

_SETTLE_S = 0.02  # a sender goes through the members of a group one after another, within microseconds
_PATIENCE_S = 1.0  # for the witness's answer

Tick = Callable[[], int | None]  # returns a signal for the child, if any


def run_child(command: Sequence[str], environment: Mapping[str, str], on_tick: Tick | None = None) -> int:
    """Run `command`, forward signals sent to us, call `on_tick` about twice a second, and return the exit code.

    A child killed by signal n gives 128 + n, one that cannot be started 127 (not found) or 126 (anything else), as in a
    shell, and prints a line with the reason. `on_tick` runs on a thread of its own and is not called again once it has
    failed; a signal that it returns is sent to the child.
    """
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    witness = GroupWitness(_FORWARDED)
    try:
        try:
            child = subprocess.Popen(
                list(command),
                env=dict(environment),
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            say(f"{command[0]} was not started: {reason}")
            exists = getattr(error, "errno", None) not in (errno.ENOENT, errno.ENOTDIR)
            return _NOT_EXECUTABLE if exists else _NOT_FOUND
        with _ticking(on_tick, child):
            code = _wait(child, watched, witness)
        while signal.sigtimedwait(watched, 0) is not None:
            pass  # meant for the child, which has ended: they must not end us before its exit code is returned
        return code
    finally:
        witness.end()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(child: subprocess.Popen[bytes], watched: set[signal.Signals], witness: GroupWitness) -> int:
    while True:
        status = child.poll()
        if status is not None:
            return 128 - status if status < 0 else status
        info = signal.sigtimedwait(watched, _TICK_S)
        # Held and resumed beyond the time it was to wait, Python's sigtimedwait returns a signal that nobody sent.
        if info is None or info.si_signo not in watched or info.si_signo == signal.SIGCHLD:
            continue
        if not witness.saw(info):
            _send(child, info.si_signo)


@contextmanager
def _ticking(on_tick: Tick | None, child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Call `on_tick` twice a second in a thread of its own, so that a tick that hangs delays no signal."""
    if on_tick is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_tick_until, args=(ended, on_tick, child), name="ddprof-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAST_TICK_S)


def _tick_until(ended: threading.Event, on_tick: Tick, child: subprocess.Popen[bytes]) -> None:
    def tick() -> bool:
        number = on_tick()
        if number is not None:
            _send(child, number)
        return True

    while not ended.wait(_TICK_S):
        if not chore("watching the job", "no counters and no windows on trouble from here on", tick):
            return


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child.pid, number)


class GroupWitness:
    """A helper process that tells signals sent to the whole process group from those sent to this process alone; create
    it with signals blocked, before any thread. Without /proc it sees those of the terminal alone, dead none.

    The kernel reports a signal's sender, but not its addressees. The helper in the group only holds its signals back:
    one sent to the group is pending there (proc(5), ShdPnd), one sent to this process alone is not.
    """

    def __init__(self, watched: Iterable[signal.Signals]) -> None:
        ours, theirs = os.pipe(), os.pipe()  # to the witness, from it
        self._pid = _forked()
        if self._pid == 0:
            os.close(ours[1])
            os.close(theirs[0])
            _hold(ours[0], theirs[1], frozenset(watched))
        os.close(ours[0])
        os.close(theirs[1])
        self._ask, self._answer = ours[1], theirs[0]

    def saw(self, received: signal.struct_siginfo) -> bool:
        """True where the group too got the signal that this process just received; each counts once."""
        if self._pid <= 0:
            return received.si_code == _FROM_KERNEL
        time.sleep(_SETTLE_S)
        if not is_stated(self._pid, "ShdPnd", received.si_signo):
            return False
        with suppress(OSError):
            os.write(self._ask, bytes([received.si_signo]))
            if select.select([self._answer], [], [], _PATIENCE_S)[0]:
                os.read(self._answer, 1)
        return True

    def end(self) -> None:
        """Close the pipes to the helper, and wait for its end."""
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

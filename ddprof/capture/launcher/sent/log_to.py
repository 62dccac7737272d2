"""The process beside a job that writes the run to experiment trackers: its start and its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ddprof.capture.guard import say

# For the analysis and the last writes once the job has ended; DDPROF_LOG_END_S sets it.
_END_S = 300.0
_SETTLE_S = 5.0


class LogTo:
    """The trackers that a run is written to while it goes on, by the module `follower`. Started once the job is there,
    ended with it.
    """

    def __init__(self, folder: Path, name: str, targets: Sequence[str], follower: str) -> None:
        self._folder = folder
        options = [word for target in targets for word in ("--log-to", target)]
        self._command = [sys.executable, "-m", follower, str(folder), "--name", name, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False

    def start(self) -> None:
        """Start it, once. In a session of its own: Ctrl-C is for the job, and the verdict comes after it."""
        if self._started:
            return
        self._started = True
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            # The working folder is the user's: a script there that is named like a tracker is none.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )

    def end(self) -> None:
        """Say that the job has ended and wait for the verdict to be written; KeyboardInterrupt ends the waiting."""
        self.start()  # of a job that was over before the first tick
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_end_s())
        except subprocess.TimeoutExpired:
            say(f"the trackers take too long: ddprof report {self._folder} --to NAME writes the verdict to them")
        finally:
            if process.poll() is None:
                process.terminate()
                _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_SETTLE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_s() -> float:
    try:
        return max(float(os.environ.get("DDPROF_LOG_END_S", "")), 0.1)
    except ValueError:
        return _END_S

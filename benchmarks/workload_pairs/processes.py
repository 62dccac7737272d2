"""A running job as one thing: stop all its processes where they are, let them go on, end them."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

from ddprof.errors import UsageError

END_S = 60.0  # capture flushes, then the launcher ends its ranks


class Processes:
    """A process and everything it has started."""

    def __init__(self, root: subprocess.Popen[bytes]) -> None:
        """UsageError without psutil."""
        try:
            import psutil
        except ImportError:
            raise UsageError("comparing jobs side by side needs psutil: pip install psutil") from None
        self._psutil: Any = psutil
        self.root = root

    @property
    def running(self) -> bool:
        """True while the job has not ended."""
        return self.root.poll() is None

    def stop(self) -> None:
        """Hold every process where it is; those started meanwhile too."""
        held: set[int] = set()
        while self.running:
            fresh = [process for process in self._all() if process.pid not in held]
            if not fresh:
                return
            self._send(fresh, signal.SIGSTOP)
            held.update(process.pid for process in fresh)

    def resume(self) -> None:
        """Let every process go on, the last ones started first: nobody waits for a child that is still held."""
        self._send(self._all()[::-1], signal.SIGCONT)

    def end(self) -> None:
        """Ask the job to end as a cluster does, and make sure of it."""
        self.resume()
        tree = self._all()
        if self.running:
            self.root.terminate()
            try:
                self.root.wait(END_S)
            except subprocess.TimeoutExpired:
                self.root.kill()
                self.root.wait()
        self._send([process for process in tree if process.is_running()], signal.SIGKILL)

    def _all(self) -> list[Any]:
        try:
            root = self._psutil.Process(self.root.pid)
            return [root, *root.children(recursive=True)]
        except self._psutil.NoSuchProcess:
            return []

    def _send(self, processes: list[Any], number: signal.Signals) -> None:
        for process in processes:
            try:
                process.send_signal(number)
            except self._psutil.NoSuchProcess:
                continue

"""The threads of this process by number and name, and the processor time of each."""

from __future__ import annotations

import threading
from pathlib import Path

TRAINING = 0  # number of the training thread
MAX_THREADS = 64
_OURS = "ddprof-"
_MAX_CHARACTERS = 100


class ThreadNames:
    """Numbers threads as they are seen; ours have none. A number past the last stands for all further threads."""

    def __init__(self) -> None:
        self._numbers: dict[int, int | None] = {}
        self._ids: list[int | None] = []  # the kernel's, by number
        self._named: list[tuple[str, int | None]] = []
        self._told = 0

    def number(self, ident: int) -> int | None:
        """The number of a thread, by its `threading.get_ident()`; None for ours."""
        if ident not in self._numbers:
            self._numbers[ident] = self._add(ident)
        return self._numbers[ident]

    def new(self) -> tuple[int, list[tuple[str, int | None]]]:
        """(number of the first, (name, the kernel's id) of it and of those after it), since they were asked last."""
        told, self._told = self._told, len(self._named)
        return told, self._named[told:]

    def forget_ended(self) -> None:
        """A new thread may have the id of one that has ended."""
        alive = {thread.ident for thread in threading.enumerate()}
        self._numbers = {
            ident: number for ident, number in self._numbers.items() if number == TRAINING or ident in alive
        }

    def cpu_ns(self) -> list[tuple[int, int]]:
        """(number, CPU time since it began) of each thread that the kernel still knows."""
        found = []
        for number, kernel_id in enumerate(self._ids):
            try:
                text = Path(f"/proc/self/task/{kernel_id}/schedstat").read_bytes()
                found.append((number, int(text.split()[0])))
            except (OSError, ValueError, IndexError):
                continue  # it has ended, or this kernel does not say
        return found

    def _add(self, ident: int) -> int | None:
        thread = threading._active.get(ident)  # type: ignore[attr-defined] # enumerate() takes a lock a thread may hold
        name = thread.name if thread is not None else "not started by Python"
        if name.startswith(_OURS):
            return None
        if len(self._named) >= MAX_THREADS:
            return MAX_THREADS
        kernel_id = getattr(thread, "native_id", None)
        self._named.append((name[:_MAX_CHARACTERS], kernel_id))
        self._ids.append(kernel_id)
        return len(self._named) - 1

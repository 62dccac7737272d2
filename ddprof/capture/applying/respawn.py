"""Whether workers that are not forked can start: they import the script anew, and are sent the data set."""

from __future__ import annotations

import ast
import builtins
import os
import pickle
import resource
import sys
from collections.abc import Iterable
from multiprocessing import forkserver
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from ddprof.capture.describe.stacks import is_library

_MAX_SOURCE_BYTES = 4 << 20


def unguarded_script() -> str | None:
    """The script's file where the line that led here would run again in each new process; None where it is under
    `if __name__ == "__main__":`, or where no script is known."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name == "<module>"
            and frame.f_globals.get("__name__") == "__main__"
            and not is_library(code.co_filename)
        ):
            return None if _is_guarded(Path(code.co_filename), frame.f_lineno) else code.co_filename
        frame = frame.f_back
    return None


def _is_guarded(path: Path, line: int) -> bool:
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            return False
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return False
    return any(
        isinstance(node, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in tree.body
    )


def unsendable(parts: Iterable[tuple[str, Any]], context: str) -> str:
    """Why these cannot be sent to workers of a multiprocessing context; "" where they can."""
    sent = _Sent()
    for name, value in parts:
        try:
            _dump(sent, value)
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            return f"{name} cannot be sent to workers that are not forked: {reason}"
    # Each storage is sent as a file descriptor of shared memory.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    if context == "forkserver":
        most = min(most, getattr(forkserver, "MAXFDS_TO_SEND", 256) // 2)
    if len(sent.storages) > most:
        return f"the data set holds {len(sent.storages)} tensors of their own: each takes a file descriptor"
    wanted, free = sum(sent.storages.values()), _shared_memory_bytes()
    if free is not None and wanted > free:
        return f"the data set's tensors ({wanted >> 20} MiB) go to shared memory, of which {free >> 20} MiB are free"
    return ""


# pickle finds classes by the import of whoever calls it. Capture's import knows ddprof by a private name, under which
# it finds no class of the script's `ddprof`.
_dump = FunctionType((lambda sent, value: sent.dump(value)).__code__, {"__builtins__": builtins})


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


class _Sent(pickle.Pickler):
    """Walks through what would be sent and copies none of its arrays and tensors."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda _: False)
        self.storages: dict[int, int] = {}  # address -> bytes
        self._tensor: Any = sys.modules["torch"].Tensor

    def persistent_id(self, obj: Any) -> Any:
        """Tensors go another way than the rest."""
        if not isinstance(obj, self._tensor) or not hasattr(obj, "untyped_storage"):
            return None
        storage = obj.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return "tensor"


def _shared_memory_bytes() -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return found.f_bavail * found.f_frsize

"""The user's line in a stack: the innermost frame outside torch, Python and other libraries."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.slices.hangs.model import StackFrame

_OWN = "/ddprof/capture/"
_LIBRARY_PLACES = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "<frozen ",
    "/shim/sitecustomize.py",
    "/torchinductor_",
    _OWN,
)
# Dumps that were made to be shared hold names of files without their folders.
_LIBRARY_FILES = {
    *("distributed_c10d.py", "c10d_logger.py", "functional.py", "_functional_collectives.py", "distributed.py"),
    *("spawn.py", "process.py", "popen_fork.py", "popen_spawn_posix.py", "threading.py", "queue.py", "selectors.py"),
    *("connection.py", "_tensor.py", "graph.py", "__init__.py", "module.py", "_utils.py", "dataloader.py"),
    *("eval_frame.py", "_contextlib.py", "contextlib.py", "runpy.py", "rendezvous.py", "<string>", "??"),
}


def is_library(frame: StackFrame) -> bool:
    """True for frames other than the user's own code."""
    path = frame.file.replace("\\", "/")
    if path.endswith(".pyx"):  # of a compiled module
        return True
    if "/" not in path:
        return path in _LIBRARY_FILES or path.startswith("<")
    return path.startswith("<") or any(place in path for place in _LIBRARY_PLACES)


def user_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """The innermost frame of the user, else the innermost outside capture; None without one."""
    others = [frame for frame in frames if _OWN not in frame.file.replace("\\", "/")]
    return next((frame for frame in others if not is_library(frame)), others[0] if others else None)

"""A small file on why a process ended that capture does not know as a rank, or that called `sys.exit`.

A script with a syntax error, one that is not there, or one that fails before its first step has no sidecar. The shim
calls this where Python's own marks of a failure are there, as the interpreter ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from ddprof.capture.describe.stacks import error_of, frames_from, is_library, last_error
from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.files.layout import END_SUFFIX, SCHEMA
from ddprof.capture.files.storage import write_json
from ddprof.capture.guard import handler_codes
from ddprof.capture.identity import identify
from ddprof.untrusted.secrets import masked

# Of launchers: their own end is their ranks'. Of whoever ends a job by Ctrl-C.
_NOT_OWN = ("ChildFailedError", "KeyboardInterrupt", "CalledProcessError")
_LAUNCHERS = ("torch.distributed.launcher.api", "deepspeed.launcher.launch", "deepspeed.launcher.runner")
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def note_exit(status: Any, caller: FrameType, function: str = "sys.exit") -> None:
    """Record that the script ends by `sys.exit(status)` or another `function`, where, and while which exception is
    handled; except in a signal handler, and in a thread that it alone ends. Of a library that passes on the same status
    (multiprocessing) nothing new.
    """
    if function != "os._exit" and threading.current_thread() is not threading.main_thread():
        return
    handlers = handler_codes(_ENDING)
    frame: FrameType | None = caller
    while frame is not None:
        if frame.f_code in handlers:
            return
        frame = frame.f_back
    _, before, _ = getattr(sys, "_ddprof_exit", (0, None, None))
    if before == status and is_library(caller.f_code.co_filename):
        return
    message = f"exit code {status & 255}" if isinstance(status, int) else masked(str(status)[:16_000])[:2000]
    if (said := _said_by_argparse(caller)) is not None:
        message = f"{message}: {said}"
    handled = sys.exc_info()[1]
    if handled is not None and not isinstance(handled, SystemExit):
        cause = error_of(handled)
        frame = next((frame for frame in cause["frames"] if not is_library(frame["file"])), None)
        at = f" at {os.path.basename(frame['file'])}:{frame['line']}" if frame else ""
        message = f"{message}, after {cause['type']}{at}: {cause['message']}"
    error = {"type": function, "message": message, "frames": frames_from(caller)}
    sys._ddprof_exit = time.time_ns(), status, error  # type: ignore[attr-defined]


def _said_by_argparse(caller: FrameType) -> str | None:
    """The message with which argparse ends a script, as for an argument that is missing; None of another caller."""
    parser = getattr(sys.modules.get("argparse"), "ArgumentParser", None)
    said = caller.f_locals.get("message") if parser is not None and caller.f_code is parser.exit.__code__ else None
    return masked(" ".join(said[:16_000].split()))[:2000] if isinstance(said, str) and said else None


def write(settings: str, is_told: bool) -> None:
    """Write the file where the process fails; nothing where its sidecar has the reason (`is_told`). Raises OSError."""
    error = _without_script() or last_error()
    if is_told or error is None or error["type"] in _NOT_OWN or any(name in sys.modules for name in _LAUNCHERS):
        return
    identity = identify()
    about = {"rank": identity.rank, "host": identity.host, "restart": identity.restart, "pid": os.getpid()}
    content = {
        "schema": SCHEMA,
        **about,
        "world_size": identity.world_size,
        "state": "exit",
        "end": {"at_ns": time.time_ns(), "error": error},
    }
    write_json(Path(CaptureConfig.from_path(settings).run_dir) / f"{identity.stem}{END_SUFFIX}", content)


def _without_script() -> dict[str, Any] | None:
    """The failure of an interpreter that found no script."""
    script = sys.argv[0] if sys.argv else ""
    if not script.endswith(".py") or os.path.exists(script) or "__file__" in vars(sys.modules["__main__"]):
        return None
    return {"type": "FileNotFoundError", "message": f"no such script: {script}", "frames": []}

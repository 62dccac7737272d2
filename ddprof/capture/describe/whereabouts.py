"""Where a rank is, and how it ended: what a verdict on a job that hangs or has failed is made of."""

from __future__ import annotations

import time
from typing import Any

from ddprof.capture.describe import environment, stacks
from ddprof.capture.files.call_log import CallLog
from ddprof.capture.identity import RankIdentity


def whereabouts(identity: RankIdentity | None, calls: CallLog | None, steps: int) -> dict[str, Any]:
    """Every thread's stack, the last calls, and the CPU time spent so far; `steps` have closed."""
    who = {} if identity is None else {"rank": identity.rank, "host": identity.host, "restart": identity.restart}
    return {
        **who,
        "world_size": identity.world_size if identity else None,
        "pid": identity.pid if identity else None,
        "state": "running",
        "at_ns": time.time_ns(),
        "cpu_ns": time.process_time_ns(),
        "steps_total": steps,
        "process_groups": environment.process_groups(),
        "calls": [] if calls is None else calls.recent(),
        "frames": stacks.main_frames(),
        "threads": stacks.threads(),
    }


def ended(reason: str) -> dict[str, Any]:
    """How this process ends: when, by which exception; where its main thread was, if a signal ends it."""
    stopped = reason in ("watchdog", "signal")
    return {
        "at_ns": time.time_ns(),
        "error": None if stopped else stacks.last_error(),
        "frames": stacks.main_frames() if stopped else [],
    }

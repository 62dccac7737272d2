"""Collectives called from Python, and the creation of process groups.

C++ collectives (DDP buckets, FSDP) are in the trace and in the flight recorder; this adds names to what the script
itself calls and the time its training thread spent in the call.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

from ddprof.capture.describe import nccl_log
from ddprof.capture.files.step import COLLECTIVE
from ddprof.capture.hub import Hub
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.instruments.communication.call_record import CallRecord, CallState

_OPERATIONS = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "send",
)
# Older names that only call another operation of the list, where torch has both (2.13): one collective, counted once.
_RENAMED = {"all_gather_into_tensor": "all_gather_single", "reduce_scatter_tensor": "reduce_scatter_single"}
WAIT_RANGE = "ddprof::collective.wait"


class Collectives(Instrumentor):
    """Wraps the functions of torch.distributed in both modules that users import them from."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._calls = CallState()

    def _install(self, module: ModuleType) -> None:
        c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
        if c10d is None:
            return  # a build without distributed
        public: Any = sys.modules["torch.distributed"]
        for name in _OPERATIONS:
            original = getattr(c10d, name, None)
            if original is not None and not hasattr(c10d, _RENAMED.get(name, "")):
                self._replace((c10d, public), name, self._timed(original, name))
        work = getattr(c10d, "Work", None)
        if work is not None:
            self.patches.add(work, "wait", self._waiting(work.wait))
        self._replace((c10d, public), "init_process_group", self._announcing(c10d.init_process_group))

    def _replace(self, owners: tuple[Any, ...], name: str, replacement: Any) -> None:
        for owner in owners:
            if hasattr(owner, name):
                self.patches.add(owner, name, replacement)

    def _timed(self, original: Any, name: str) -> Any:
        begin, end, label = self.hub.begin, self.hub.end, f"ddprof::collective.{name}"
        record = CallRecord(self.hub, name, original, sys.modules["torch.distributed.distributed_c10d"], self._calls)
        enter, leave = self.hub.guard.wrap(record.enter), self.hub.guard.wrap(record.leave)
        is_compiling = sys.modules["torch"].compiler.is_compiling

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            token = begin(COLLECTIVE, label)  # first, so that what we do ourselves is no Python of the script
            at, raised = None, True
            try:
                at = enter(args, kwargs)
                result = original(*args, **kwargs)
                raised = False
                return result
            finally:
                leave(at, raised)
                end(COLLECTIVE, token)

        return timed

    def _waiting(self, original: Any) -> Any:
        """`Work.wait` as a part of its collective: what the call began, or FSDP, or a hook, ends here."""
        begin, end = self.hub.begin, self.hub.end

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            token = begin(COLLECTIVE, WAIT_RANGE)
            try:
                return original(work, *args, **kwargs)
            finally:
                end(COLLECTIVE, token)

        return wait

    def _announcing(self, original: Any) -> Any:
        process_group_exists = self.hub.process_group_exists
        ask_nccl = self.hub.guard.wrap(self._ask_nccl)

        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            ask_nccl(args[0] if args else kwargs.get("backend"))
            result = original(*args, **kwargs)
            process_group_exists()
            return result

        return init_process_group

    def _ask_nccl(self, backend: object) -> None:
        """Set NCCL's log before a process group is made: NCCL reads the settings at its first message."""
        journal, folder = self.hub.journal, self.hub.folder
        may_start = sys.modules["torch"].distributed.is_nccl_available() and (backend is None or "nccl" in str(backend))
        if may_start and journal.nccl_log is None:
            journal.nccl_log = self.hub.guard.attempt("NCCL's log", lambda: nccl_log.ask(folder, os.environ))

"""Settings of the whole process, and the record of everything that was applied in it."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddprof.capture.applying.affinity import bind
from ddprof.capture.applying.garbage import CollectionSchedule
from ddprof.capture.applying.outcomes import Outcomes, row_of
from ddprof.capture.instruments.base import Instrumentor
from ddprof.settings.catalogue import NCCL_PREFIX, PROCESS, Value
from ddprof.settings.environment import differs

if TYPE_CHECKING:
    from ddprof.capture.hub import Hub

_TF32 = {True: "high", False: "highest"}


class ProcessSettings(Instrumentor):
    """Sets what can be set once torch is there; environment variables were set by `ddprof run`."""

    def __init__(self, hub: Hub, outcomes: Outcomes) -> None:
        super().__init__(hub)
        self._outcomes = outcomes
        self._wanted: dict[str, Value] = {}
        for fix in outcomes.fixes:
            if PROCESS in fix.targets:
                self._wanted.update(fix.values)
        self._unbound = ""
        self._schedule: CollectionSchedule | None = None

    def _install(self, module: ModuleType) -> None:
        if "cpu_affinity" in self._wanted:
            self._unbound = bind()
        if "tf32" in self._wanted:
            module.set_float32_matmul_precision(_TF32[bool(self._wanted["tf32"])])
        if "gc_interval" in self._wanted:
            self._schedule = CollectionSchedule(int(self._wanted["gc_interval"]))
            self._schedule.install()

    def _uninstall(self) -> None:
        if self._schedule is not None:
            self._schedule.uninstall()

    def recorded(self) -> dict[str, Any]:
        """`applied`: what became of every setting, as it is now."""
        own = [row_of(name, value, "", PROCESS, self._why_not(name, value)) for name, value in self._wanted.items()]
        return {"applied": [*self._outcomes.recorded(), *own]}

    def _why_not(self, name: str, value: Value) -> str:
        torch = sys.modules["torch"]
        if name == "cpu_affinity":
            return self._unbound
        if name == "gc_interval":
            return self._schedule.why_not() if self._schedule is not None else "torch was not imported"
        if name == "tf32":
            now = torch.get_float32_matmul_precision()
            return "" if now == _TF32[bool(value)] else f"the script sets float32_matmul_precision to {now}"
        why = differs(name, value, os.environ) or _unused(name, torch)
        if not why and name == "omp_num_threads" and torch.get_num_threads() != value:
            return f"the script sets the number of threads to {torch.get_num_threads()}"
        return why


def _unused(name: str, torch: Any) -> str:
    """Why a variable that reached the process changes nothing in it; "" where it may."""
    if name.startswith(NCCL_PREFIX) and not torch.cuda.is_available():
        return "there is no CUDA device: ranks do not use NCCL"
    if name == "expandable_segments" and not getattr(torch, "accelerator", torch.cuda).is_available():
        return "there is no accelerator whose memory it would allocate"
    return ""

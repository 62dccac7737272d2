"""Settings of the whole process, such as its cores, and the record of everything that was applied in it."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Sequence
from multiprocessing import parent_process
from pathlib import Path
from types import ModuleType
from typing import Any

from ddprof.capture.applying.outcomes import Outcomes, row_of
from ddprof.capture.describe import environment
from ddprof.capture.files.storage import count_in
from ddprof.capture.hub import Hub
from ddprof.capture.identity import identify
from ddprof.capture.instruments.base import Instrumentor
from ddprof.settings.catalogue import NCCL_PREFIX, PROCESS, Value
from ddprof.settings.wanted import differs

_TF32 = {True: "high", False: "highest"}
_BOUND = "DDPROF_CORES_OF"  # the rank whose cores a process and its children have
_CPUS = Path("/sys/devices/system/cpu")


class ProcessSettings(Instrumentor):
    """Settings of the process that need torch; `ddprof run` has set environment variables before."""

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
            self._unbound = _bind()
        if "tf32" in self._wanted:
            module.set_float32_matmul_precision(_TF32[bool(self._wanted["tf32"])])
        if "gc_interval" in self._wanted:
            self._schedule = CollectionSchedule(int(self._wanted["gc_interval"]))
            self._schedule.install()

    def _uninstall(self) -> None:
        if self._schedule is not None:
            self._schedule.uninstall()

    def recorded(self) -> dict[str, Any]:
        """`applied`: the outcome of every setting so far."""
        rows = [row_of(name, value, "", PROCESS, self._why_not(name, value)) for name, value in self._wanted.items()]
        return {"applied": [*self._outcomes.recorded(), *rows]}

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
    """The reason why a variable of the process has no effect in it; "" where it may have one."""
    if name.startswith(NCCL_PREFIX) and not torch.cuda.is_available():
        return "there is no CUDA device: ranks do not use NCCL"
    if name == "expandable_segments" and not getattr(torch, "accelerator", torch.cuda).is_available():
        return "there is no accelerator whose memory it would allocate"
    return ""


def _bind() -> str:
    """Bind this process and its children to its share of the cores, adjacent ones. Returns a refusal, else ""."""
    if os.environ.get(_BOUND):
        return ""  # a child of a rank: it has the rank's cores already
    if not hasattr(os, "sched_setaffinity"):
        return "this system does not bind processes to cores"
    rank, size = identify().local_rank, environment.processors()["local_ranks"]
    if parent_process() is not None or rank is None or not isinstance(size, int):
        return "the launcher does not say which of how many ranks of the host this process is"
    usable = os.sched_getaffinity(0)
    try:
        if usable != os.sched_getaffinity(os.getppid()):
            return "the launcher binds each rank to cores already"
    except OSError:
        return "the cores of the launcher are not known"
    cores = share(in_order(usable), rank, size)
    if not cores:
        return f"{len(usable)} cores are too few for {size} ranks"
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)
    os.environ[_BOUND] = str(rank)
    return ""


def share(cores: Sequence[int], rank: int, ranks: int) -> Sequence[int]:
    """The cores of one of `ranks` ranks: adjacent ones; none where there are fewer cores than ranks."""
    if not 0 <= rank < ranks or len(cores) < ranks:
        return ()
    return cores[rank * len(cores) // ranks : (rank + 1) * len(cores) // ranks]


def in_order(cores: set[int]) -> list[int]:
    """Cores ordered by memory node, with the threads of a physical core side by side."""

    def place(core: int) -> tuple[int, ...]:
        counts = [count_in(_CPUS / f"cpu{core}/topology" / name) for name in ("physical_package_id", "core_id")]
        return (_node(core), *(count or 0 for count in counts), core)

    return sorted(cores, key=place)


def _node(core: int) -> int:
    names = (entry.name for entry in (_CPUS / f"cpu{core}").glob("node*"))
    return next((int(name[4:]) for name in names if re.fullmatch(r"node\d+", name)), 0)


class CollectionSchedule:
    """Garbage collection at a fixed interval: on all ranks after the same optimizer step, and at no other time.

    Begins with the first optimizer step: what exists then is left out of all later collections.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps = 0
        self._took_over = False
        self._was_off = False
        self._handle: Any = None

    def install(self) -> None:
        """Count optimizer steps, the same on every rank."""
        source: Any = sys.modules["torch.optim.optimizer"]
        self._handle = source.register_optimizer_step_post_hook(lambda *_: self.stepped())
        os.register_at_fork(after_in_child=self._in_child)

    def uninstall(self) -> None:
        """Return collecting to Python."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._in_child()

    def stepped(self) -> None:
        """Count an optimizer step, and collect when it is due."""
        self._steps += 1
        if self._steps == 1:
            self._was_off = not gc.isenabled()
            if not self._was_off:
                gc.collect()
                gc.freeze()
                gc.disable()
                self._took_over = True
        elif self._took_over and self._steps % self._interval == 0:
            gc.collect()

    def why_not(self) -> str:
        """Reason why collections do not follow the interval; "" where they do."""
        if not self._steps:
            return "no optimizer has stepped in this process"
        if self._was_off:
            return "the script has switched garbage collection off itself"
        return "the script has switched garbage collection on again" if gc.isenabled() else ""

    def _in_child(self) -> None:
        """Restore Python's own collecting in a forked loader worker, which has no optimizer."""
        if self._took_over:
            self._took_over = False
            gc.enable()

"""Cores for each rank of a host: whole physical cores, near one another."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from multiprocessing import parent_process
from pathlib import Path

from ddprof.capture.describe import environment
from ddprof.capture.identity import identify

_BOUND = "DDPROF_CORES_OF"  # the rank whose cores a process and its children have
_CPUS = Path("/sys/devices/system/cpu")


def bind() -> str:
    """Give this process its share of the cores, which its children inherit. Why not, in words; "" where done."""
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
    """The cores of one of so many ranks: a run of neighbours; none where there are fewer cores than ranks."""
    if not 0 <= rank < ranks or len(cores) < ranks:
        return ()
    return cores[rank * len(cores) // ranks : (rank + 1) * len(cores) // ranks]


def in_order(cores: set[int]) -> list[int]:
    """Cores of one memory node together, and the threads of a physical core side by side."""
    return sorted(
        cores, key=lambda core: (_node(core), _number(core, "physical_package_id"), _number(core, "core_id"), core)
    )


def _node(core: int) -> int:
    names = (entry.name for entry in (_CPUS / f"cpu{core}").glob("node*"))
    return next((int(name[4:]) for name in names if re.fullmatch(r"node\d+", name)), 0)


def _number(core: int, name: str) -> int:
    try:
        return int((_CPUS / f"cpu{core}" / "topology" / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0

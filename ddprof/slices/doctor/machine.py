"""This host: its cores, the memory that loader workers share, its GPUs, and the place of a run's files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ddprof.capture.launcher.host.gpus import Nvml
from ddprof.slices.doctor.model import Provision, State
from ddprof.units import format_bytes

# Docker gives a container 64 MiB; one batch of 256 images of 224 x 224 in float32 has 147 MiB.
SMALL_SHARED_BYTES = 1 << 30
_SHARED_MEMORY = Path("/dev/shm")
# File systems that more than one host sees (names of /proc/mounts).
_SHARED = ("nfs", "nfs4", "lustre", "ceph", "gpfs", "beegfs", "wekafs", "cifs", "glusterfs", "orangefs", "afs")


def machine(out: Path) -> Iterator[Provision]:
    """Checks of this host; `out` is the output folder of `ddprof run`."""
    yield _cores()
    if _SHARED_MEMORY.is_dir():
        yield _shared_memory(shutil.disk_usage(_SHARED_MEMORY).total)
    yield _gpus()
    yield _ptrace(Path("/proc/sys/kernel/yama/ptrace_scope"))
    yield _folder(out)


def _cores() -> Provision:
    usable, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count() or 0
    quota = _quota(Path("/sys/fs/cgroup/cpu.max"))
    words = f"{usable} of {all_of_them} can be used"
    if quota is None or quota >= usable:
        return Provision("cores", State.OK, words)
    remedy = "the container's CPU limit holds ranks and loader workers back: raise it, or start fewer of them"
    return Provision("cores", State.MISSING, f"{words}, for {quota:.1f} cores' worth of time", remedy)


def _quota(file: Path) -> float | None:
    """CPU time that the control group may use, in cores; None where it is not limited."""
    try:
        allowed, period = file.read_text().split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _shared_memory(size_bytes: int) -> Provision:
    words = f"{format_bytes(size_bytes)} in {_SHARED_MEMORY}"
    if size_bytes >= SMALL_SHARED_BYTES:
        return Provision("shared memory", State.OK, words)
    remedy = "loader workers hand batches over in it: docker run --shm-size=8g, or an emptyDir with medium: Memory"
    return Provision("shared memory", State.MISSING, words, remedy)


def _gpus() -> Provision:
    library = Nvml.open()
    if library is None:
        words = "no NVIDIA driver here: reports have no clocks, power and throttling"
        return Provision("GPU sensors", State.UNKNOWN, words)
    devices = library.devices()
    return Provision("GPU sensors", State.OK, f"NVML sees {len(devices)} GPU{'s' * (len(devices) != 1)}")


def _ptrace(file: Path) -> Provision:
    name = "stacks of a hang"
    words = "taken inside each process: no ptrace is needed"
    try:
        scope = int(file.read_text())
    except (OSError, ValueError):
        return Provision(name, State.OK, words)
    return Provision(
        name, State.OK, f"{words} (yama.ptrace_scope is {scope}, which limits gdb and py-spy)" if scope else words
    )


def _folder(out: Path) -> Provision:
    """Check that a run can be written to the folder, and whether other hosts would see it."""
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.is_dir())
    if not os.access(there, os.W_OK):
        return Provision(
            "run folder", State.MISSING, f"{there} cannot be written", "ddprof run --out FOLDER -- COMMAND"
        )
    kind, free = _file_system(there, Path("/proc/mounts")), format_bytes(shutil.disk_usage(there).free)
    words = f"{out} on {kind or 'an unknown file system'}, {free} free"
    if kind is None:
        return Provision("run folder", State.UNKNOWN, words)
    if kind in _SHARED or kind.startswith("fuse"):
        return Provision("run folder", State.OK, words)
    return Provision(
        "run folder", State.OK, f"{words}; a job of several hosts needs --out where all of them see it, or a URL"
    )


def _file_system(folder: Path, mounts: Path) -> str | None:
    """Type of the file system that holds a folder; None where unknown."""
    try:
        rows = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return None
    # Spaces in a mount point are written \040; the last of equal ones hides those before.
    points = [(row[1].replace("\\040", " "), row[2]) for row in rows if len(row) > 2]
    above = [(len(point), number, kind) for number, (point, kind) in enumerate(points) if folder.is_relative_to(point)]
    return max(above)[2] if above else None

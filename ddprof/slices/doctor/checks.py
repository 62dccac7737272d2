"""The checks: this host (cores, the memory that loader workers share, GPUs, the place of a run's files), and PyTorch as
the training job will see it, tested by profiling in a separate process.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddprof.capture.launcher.host.gpus import Nvml
from ddprof.units import format_bytes


class State(enum.Enum):
    """The state of a part: it works, it is missing, so that ddprof can do less, or it cannot be determined here."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Provision:
    """Result of one check. `said`: what was found; `remedy`: what to do, "" where nothing is needed."""

    name: str
    state: State
    said: str
    remedy: str = ""


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


OLDEST = (2, 4)
PATIENCE_S = 180  # a first import from a network file system takes a minute and more

_PROBE = """
import json, sys
found = {"python": sys.version.split()[0]}
try:
    import torch
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
else:
    import torch.distributed as dist
    found["torch"] = str(torch.__version__)
    found["backends"] = [
        name for name in ("nccl", "gloo", "mpi", "ucc", "xccl")
        if dist.is_available() and getattr(dist, f"is_{name}_available", lambda: False)()
    ]
    found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if "nccl" in found["backends"] and found["devices"]:
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["flight_recorder"] = hasattr(torch._C._distributed_c10d, "_dump_nccl_trace")
    device = "cuda" if found["devices"] else "cpu"
    try:
        from torch.profiler import profile
        with profile() as recorded:
            torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
            if found["devices"]:
                torch.cuda.synchronize()
        events = recorded.events()
        found["host_events"] = sum("mm" in event.name for event in events)
        found["device_events"] = sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events)
    except Exception as error:
        found["profiler_error"] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(found))
"""


def training(python: str) -> Iterator[Provision]:
    """Checks of the interpreter that runs the training."""
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        yield Provision("PyTorch", State.UNKNOWN, f"{python}: no answer within {PATIENCE_S} s")
        return
    except OSError as error:
        yield Provision("PyTorch", State.UNKNOWN, f"{python} cannot be started: {error.strerror}")
        return
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        yield Provision("PyTorch", State.UNKNOWN, f"{python} ended with {done.returncode}: {last}")
        return
    yield from _told(answer)


def _told(answer: Mapping[str, Any]) -> Iterator[Provision]:
    if "torch" not in answer:
        words = f"none for Python {answer['python']} ({answer.get('error')}): traces can be analyzed, not recorded"
        yield Provision(
            "PyTorch", State.MISSING, words, "install torch >= 2.4, or name the interpreter that trains: --python"
        )
        return
    backends = ", ".join(answer["backends"]) or "none"
    words = f"{answer['torch']}, Python {answer['python']}, backends: {backends}"
    if _release(answer["torch"]) < OLDEST:
        yield Provision("PyTorch", State.MISSING, words, "ddprof run needs torch >= 2.4")
    else:
        yield Provision("PyTorch", State.OK, words)
    yield _profiler(answer)
    if answer["devices"]:
        yield _device_activities(answer)
    if "nccl" in answer:
        recorder = "has its flight recorder" if answer["flight_recorder"] else "has no flight recorder"
        state = State.OK if answer["flight_recorder"] else State.MISSING
        yield Provision("NCCL", state, f"{answer['nccl']}; this torch {recorder}, which `ddprof hang` reads")


def _profiler(answer: Mapping[str, Any]) -> Provision:
    if "profiler_error" in answer:
        return Provision(
            "profiler", State.MISSING, answer["profiler_error"], "this torch was built without Kineto: use a release"
        )
    if not answer["host_events"]:
        return Provision(
            "profiler", State.MISSING, "a trace of one matrix product is empty", "another profiler may be at work"
        )
    return Provision("profiler", State.OK, "records operators")


def _device_activities(answer: Mapping[str, Any]) -> Provision:
    name, devices = "GPU activities", answer["devices"]
    if answer.get("device_events"):
        return Provision(name, State.OK, f"kernels are recorded on {len(devices)} x {devices[0]}")
    remedy = (
        "end what else holds CUPTI (nsys, DCGM profiling, another torch.profiler); where the driver keeps it to "
        "administrators: NVreg_RestrictProfilingToAdminUsers=0, or a container with --cap-add=SYS_ADMIN"
    )
    return Provision(name, State.MISSING, f"no kernel was recorded on {devices[0]}", remedy)


def _release(version: str) -> tuple[int, ...]:
    digits = version.split("+")[0].split(".")[:2]
    return tuple(int(part) for part in digits if part.isdigit())

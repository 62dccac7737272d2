"""PyTorch as the training job will see it, tested by profiling in a separate process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from ddprof.slices.doctor.model import Provision, State

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

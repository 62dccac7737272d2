"""The process around the model: device, versions, precision, process groups, communication settings."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from ddprof._version import __version__
from ddprof.capture.identity import joined

_COMMUNICATION_PREFIXES = ("NCCL_", "RCCL_", "GLOO_", "TORCH_NCCL_", "FI_", "UCX_")
# Debugging aids, by which each launch waits for its kernel and each collective is checked across ranks first.
_DEBUGGING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "TORCH_DISTRIBUTED_DEBUG")
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")
_SECRET_MARKERS = ("TOKEN", "KEY", "SECRET", "PASSWORD")


def device() -> dict[str, Any]:
    """The accelerator of this process, from an existing device context, which must not be created for it."""
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {
            "kind": "rocm" if torch.version.hip else "cuda",
            "name": properties.name,
            "total_memory_bytes": properties.total_memory,
            "index": torch.cuda.current_device(),
            "uuid": str(properties.uuid) if hasattr(properties, "uuid") else None,
            "pci_address": _pci_address(properties),
            "compute_capability": [properties.major, properties.minor],
            "sm_count": properties.multi_processor_count,
        }
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and xpu.is_available() and xpu.is_initialized():
        properties = xpu.get_device_properties(xpu.current_device())
        return {"kind": "xpu", "name": properties.name, "total_memory_bytes": properties.total_memory}
    return {"kind": "cpu", "name": platform.processor() or platform.machine(), "total_memory_bytes": None}


def _pci_address(properties: Any) -> str | None:
    """The device's name in /sys; None where torch does not know it."""
    numbers: list[Any] = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if any(number is None for number in numbers):
        return None
    return "{:04x}:{:02x}:{:02x}.0".format(*numbers)


def versions() -> dict[str, Any]:
    """torch, Python, ddprof, and NCCL where the build has it."""
    torch = sys.modules["torch"]
    nccl = None
    if torch.cuda.is_available() and not torch.version.hip:
        nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "ddprof": __version__,
        "nccl": nccl,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


def precision() -> dict[str, Any]:
    """Settings that decide the number format of large matrix products; inside a forward, autocast too."""
    torch = sys.modules["torch"]
    kind = device()["kind"]
    device_type = "cuda" if kind in ("cuda", "rocm") else kind
    autocast = bool(torch.is_autocast_enabled(device_type))
    return {
        "autocast": autocast,
        "autocast_dtype": str(torch.get_autocast_dtype(device_type)).removeprefix("torch.") if autocast else None,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "allow_tf32": torch.get_float32_matmul_precision() != "highest",
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "num_threads": torch.get_num_threads(),
    }


def watchers() -> list[str]:
    """Functions that the interpreter calls as this thread runs Python, as debuggers, coverage and profilers set them;
    none of torch's own profiler.
    """
    called = [("sys.settrace", sys.gettrace()), ("sys.setprofile", sys.getprofile())]
    named = [f"{by}: {_named(function)}" for by, function in called if function is not None]
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on, with six tools
    tools = [monitoring.get_tool(number) for number in range(6)] if monitoring is not None else []
    return [name for name in (*named, *(f"sys.monitoring: {tool}" for tool in tools if tool)) if "torch" not in name]


def _named(function: object) -> str:
    of = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(of, '__module__', None) or '?'}.{getattr(of, '__qualname__', '?')}"


def processors() -> dict[str, int | str | None]:
    """Number and list of this process's CPUs, ranks of the job on this host that share them, and CPUs of the machine
    (null: not known).
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    named = (os.environ.get(name, "") for name in _LOCAL_SIZES)
    return {
        "usable": os.cpu_count() if cores is None else len(cores),
        "local_ranks": next((int(size) for size in named if size.isdigit()), None),
        "cores": None if cores is None else _in_words(cores),
        "machine": os.cpu_count(),
    }


def _in_words(cores: list[int]) -> str:
    """Sorted numbers as the kernel writes a CPU list: "0-3,8"."""
    first = [core for core in cores if core - 1 not in cores]
    last = [core for core in cores if core + 1 not in cores]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(first, last, strict=True))


def allocator() -> dict[str, int] | None:
    """Totals of CUDA's caching allocator: retries after failed allocations, driver allocations, peak bytes."""
    torch = sys.modules["torch"]
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    stats = torch.cuda.memory_stats()
    names = {
        "retries": "num_alloc_retries",
        "out_of_memory": "num_ooms",
        "device_allocations": "num_device_alloc",
        "device_frees": "num_device_free",
        "peak_allocated_bytes": "allocated_bytes.all.peak",
        "peak_reserved_bytes": "reserved_bytes.all.peak",
    }
    return {key: int(stats[name]) for key, name in names.items() if name in stats}


def backend() -> str | None:
    """The default process group's backend."""
    distributed = joined()
    return None if distributed is None else str(distributed.get_backend())


def process_groups() -> list[dict[str, Any]]:
    """Every process group this rank is a member of, with its global ranks."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return []
    groups = []
    for group, names in list(c10d._world.pg_map.items()):
        ranks = c10d._world.pg_group_ranks.get(group) or {}
        groups.append(
            {
                "name": c10d._world.pg_names.get(group, getattr(group, "group_name", None)),
                "desc": getattr(group, "group_desc", None),
                "ranks": sorted(ranks),
                "backend": names[0] if names else None,
            }
        )
    return groups


def communication_environment() -> dict[str, str]:
    """NCCL_* and similar variables of this process, and those that debug launches and collectives."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith((*_COMMUNICATION_PREFIXES, *_DEBUGGING))
        and not any(marker in name for marker in _SECRET_MARKERS)
    }

"""The categories of every vendor and year of Kineto's traces, mapped onto `model.Kind`."""

from __future__ import annotations

import re
from functools import lru_cache

from ddprof.model import Kind

_KINDS = {
    Kind.CPU_OP: ("cpu_op", "Operator", "operator", "cpu", "glow_runtime", "hpu_op"),
    Kind.ANNOTATION: ("user_annotation", "user_scope", "collective_comm"),
    Kind.GPU_ANNOTATION: ("gpu_user_annotation", "mtia_user_annotation"),
    Kind.KERNEL: (
        *("kernel", "Kernel", "gpu_kernel", "gpu_op", "mtia_ccp_events", "mtia_kernel", "xpu_kernel", "npu_kernel"),
    ),
    Kind.MEMCPY: ("gpu_memcpy", "Memcpy", "memcpy", "xpu_memcpy"),
    Kind.MEMSET: ("gpu_memset", "Memset", "memset", "xpu_memset"),
    Kind.RUNTIME: (
        *("cuda_runtime", "Runtime", "runtime", "cuda_driver", "driver", "hip_runtime", "hip_driver", "roctx"),
        *("mtia_runtime", "xpu_runtime", "xpu_driver", "hpu_runtime", "npu_runtime"),
        *("privateuse1_runtime", "privateuse1_driver"),
    ),
    Kind.PYTHON: ("python_function", "Python"),
    Kind.SYNC: ("cuda_sync", "cuda_event", "gpu_sync"),
    Kind.OVERHEAD: ("overhead", "Overhead"),
}
KIND_OF = {category: kind for kind, categories in _KINDS.items() for category in categories}
# Bookkeeping of the profiler itself, never work.
IGNORED = frozenset({"Trace", "External id", "cuda_profiler_range", "gpu_pm_counter", "mtia_insight", "critical_path"})
DEVICE_FLOWS = frozenset({"ac2g", "async_cpu_to_gpu", "async_gpu", "async"})  # from a launch to what it launched
FLOWS = DEVICE_FLOWS | {"fwdbwd", "forward_backward", "critical_path"}

_COPY = re.compile(r"Copy(Host|Device)To(Host|Device)")  # of rocprof and of JAX
_MEMCPY = re.compile(r"memcpy|copybuffer", re.IGNORECASE)
_MEMSET = re.compile(r"memset|fillbuffer", re.IGNORECASE)


def kind_of(category: str) -> Kind | None:
    """The kind of a category; None where the category is not known."""
    kind = KIND_OF.get(category)
    if kind is None and category.startswith(("privateuse1", "mtia", "npu", "xpu", "hpu")):
        return Kind.RUNTIME if category.endswith(("runtime", "driver")) else Kind.KERNEL
    return kind


def device_kind(name: str) -> Kind:
    """The kind of a device event by its name, for categories that do not decide it."""
    if _MEMCPY.search(name):
        return Kind.MEMCPY
    return Kind.MEMSET if _MEMSET.search(name) else Kind.KERNEL


def copy_name(name: str) -> str:
    """The name; of a copy in CUPTI's spelling ("Memcpy HtoD"), so that its direction is recognised."""
    match = _COPY.fullmatch(name)
    return f"Memcpy {match[1][0]}to{match[2][0]}" if match else name


_MOST_CHARACTERS = 4_096  # of a name that are looked at: of 38 traces by others the longest has 2,004
REMEMBERED = 2**12  # names: those of one trace, as the next rank's are mostly the same
_WITH_SHAPES = re.compile(
    r"mm$|mm_|addmm|matmul|linear|conv|einsum|attention|sdpa|flash|embedding|optimizer|foreach|fused|lstm|gru|rnn|transformer|^CompiledFunction"
    r"|^c10d::|^gloo:|^nccl:|^mpi:|all_?reduce|all_?gather|reduce_scatter|all_?to_?all|broadcast",
    re.IGNORECASE,
)


@lru_cache(maxsize=REMEMBERED)
def wants_shapes(name: str) -> bool:
    """True for operators whose recorded shapes are used.

    Matrix products, convolutions, attention, embeddings, optimizers, c10d.
    """
    is_frame = name.startswith("<") or "): " in name  # a trace with stacks has many names of them, and they have none
    return not is_frame and _WITH_SHAPES.search(name, 0, _MOST_CHARACTERS) is not None

"""Kinds of the categories of every vendor and year of Kineto's traces, and used arguments of operators: looked up once
per name instead of once per event.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from ddprof.model import Kind
from ddprof.tables import Array

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

# Of rocprof and JAX, and of rocprofv3 (MEMORY_COPY_HOST_TO_DEVICE).
_COPY = re.compile(r"(?:MEMORY_)?Copy_?(H|D)\w+?_?To_?(H|D)\w+", re.IGNORECASE)
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


UNKNOWN = 255  # stands for a kind where the category is not known: the event's arguments decide
PYTHON_FRAMES = frozenset({"python_function", "Python"})
_DROPPED = FLOWS - {"critical_path"}  # arrows, which say nothing that correlation does not


# A shorter Python frame is part of the one around it. A host that is held for less than this is not held: waking from a
# sleep takes as long (facts/stops.py). With this, 1 to 14 % of the frames of real recordings are kept.
MIN_FRAME_NS = 100_000


class Route(IntEnum):
    """Destination of a span in `scan.c`: columns, a count, columns for long Python frames only, msgspec, or columns
    with the used arguments of an operator.
    """

    KEEP, DROP, PYTHON, REST, OPERATOR = range(5)


class Interned(dict[Any, int]):
    """A dictionary that numbers its keys in order of first use."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number

    def all(self, keys: Iterable[Any]) -> Array:
        """The number of each key, int32, shape (len(keys),)."""
        return np.array(array("i", list(map(self.__getitem__, keys))), np.int32)


class Categories(Interned):
    """Categories numbered in order of first use; `kind`, `dropped` and `is_python` are indexed by that number."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds, self._dropped, self._python = bytearray(), bytearray(), bytearray()

    def __missing__(self, category: str) -> int:
        kind = kind_of(category)
        code = int(kind) if kind is not None else int(Kind.OTHER) if category in IGNORED else UNKNOWN
        self._kinds.append(code)
        self._python.append(category in PYTHON_FRAMES)
        self._dropped.append(category in _DROPPED)
        self[category] = number = len(self)
        return number

    @property
    def kind(self) -> Array:
        """The code of each category's kind, or UNKNOWN; uint8."""
        return np.frombuffer(bytes(self._kinds), np.uint8)

    @property
    def dropped(self) -> Array:
        """Mask of categories of arrows."""
        return np.frombuffer(bytes(self._dropped), bool)

    @property
    def is_python(self) -> Array:
        """Mask of categories of Python frames."""
        return np.frombuffer(bytes(self._python), bool)

    def route(self, number: int) -> int:
        """The Route of a category's spans in the native scanner."""
        if self._python[number]:
            return Route.PYTHON
        if self._dropped[number]:
            return Route.DROP
        if self._kinds[number] in (Kind.CPU_OP, Kind.ANNOTATION):
            return Route.OPERATOR
        return Route.REST if self._kinds[number] in (UNKNOWN, Kind.OTHER) else Route.KEEP

    def counts(self, numbers: Array) -> dict[str, int]:
        """Occurrences of each category among `numbers`, without zeros."""
        each = np.bincount(numbers, minlength=len(self)).tolist()
        return {category: n for category, n in zip(self, each, strict=True) if n}


LIBRARY = re.compile(r"^(?:gloo|mpi|ucc|hccl|xccl):(?P<op>\w+)")
# Which of an operator's inputs are the peer and the tag (torch/csrc/distributed/c10d/Ops.cpp).
MESSAGE_INPUTS: Mapping[str, tuple[int | None, int]] = {
    "c10d::send": (2, 3),
    "c10d::recv_": (2, 3),
    "c10d::recv_any_source_": (None, 2),
}


class Used(IntEnum):
    """Use of an operator's arguments in `scan.c`: none, shapes and types of the inputs, or more than it parses."""

    NOTHING, SHAPES, ALL = range(3)


class OperatorNames:
    """Used arguments by operator name; `strings` numbers the names in order of first use."""

    def __init__(self, strings: dict[str, int]) -> None:
        self._strings = strings
        self._used = bytearray()

    def _known(self) -> bytearray:
        if unknown := len(self._strings) - len(self._used):
            newest = list(islice(reversed(self._strings), unknown))  # from the end: to skip the others takes their time
            self._used.extend(map(_used, reversed(newest)))
        return self._used

    def route(self, number: int) -> int:
        """The Used value of an operator for the native scanner."""
        return self._known()[number]

    def are_used(self, names: Array) -> Array:
        """Mask of operators with used arguments, by the numbers of their names."""
        used: Array = np.frombuffer(bytes(self._known()), np.uint8)[names] != Used.NOTHING
        return used


def _used(name: str) -> Used:
    if not wants_shapes(name):
        return Used.NOTHING
    return Used.ALL if name in MESSAGE_INPUTS or LIBRARY.match(name) else Used.SHAPES

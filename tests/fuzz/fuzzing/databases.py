"""Small databases as Nsight Systems and rocprof write them."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fuzzing.tree import Tree

_PROCESS = 100 << 24  # globalPid; globalTid adds the thread


def database(tables: Mapping[str, tuple[str, Sequence[Sequence[Any]]]]) -> bytes:
    """The bytes of a database: table -> (its columns, its rows)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.sqlite"
        with sqlite3.connect(path) as connection:
            for table, (columns, rows) in tables.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
                marks = ", ".join("?" * len(columns.split(",")))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        connection.close()
        return path.read_bytes()


def nsys() -> Tree:
    """A capture of one process: ranges, calls, kernels and copies of six steps."""
    texts = [(1, "gemm"), (2, "cudaLaunchKernel_v7000"), (3, "aten::mm, op_id = 7, sizes = [[4, 4], [4, 4]]")]
    texts += [(4, "ncclDevKernel_AllReduce"), (5, "cudaMemcpyAsync_v3020")]
    kernels, calls, ranges, copies = [], [], [], []
    thread = _PROCESS + 101
    for step in range(6):
        at, number = step * 3_000_000, 10 * step
        ranges.append((at, at + 2_900_000, 59, thread, f"ProfilerStep#{step}", None))
        ranges.append((at + 1_000, at + 900_000, 59, thread, None, 3))
        for offset, name in ((0, 1), (1, 4)):
            start = at + 100_000 + offset * 1_000_000
            calls.append((start - 50_000, start - 40_000, thread, number + offset, 2))
            kernels.append((start, start + 800_000, 0, 7 + offset, number + offset, name, name, _PROCESS))
        copies.append((at + 10_000, at + 60_000, 0, 7, number + 5, 4096, 1, 0, 2, _PROCESS))
        calls.append((at + 5_000, at + 9_000, thread, number + 5, 5))
    kernel_columns = "start, end, deviceId, streamId, correlationId, demangledName, shortName, globalPid"
    copy_columns = "start, end, deviceId, streamId, correlationId, bytes, copyKind, srcKind, dstKind, globalPid"
    tables: dict[str, tuple[str, Sequence[Sequence[Any]]]] = {
        "StringIds": ("id, value", texts),
        "CUPTI_ACTIVITY_KIND_KERNEL": (kernel_columns, kernels),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (copy_columns, copies),
        "CUPTI_ACTIVITY_KIND_RUNTIME": ("start, end, globalTid, correlationId, nameId", calls),
        "NVTX_EVENTS": ("start, end, eventType, globalTid, text, textId", ranges),
        "TARGET_INFO_GPU": ("id, name, totalMemory", [(0, "NVIDIA H100", 80 << 30)]),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", [(1_760_000_000_000_000_000,)]),
    }
    return {"run/report1.sqlite": database(tables)}


def rpd() -> Tree:
    """A rocprof database of one device."""
    texts = [(1, "KernelExecution"), (2, "gemm"), (3, "hipLaunchKernel"), (4, "CopyHostToDevice"), (5, "hipMemcpy")]
    operations, calls, links, copies = [], [], [], []
    for number in range(12):
        at, is_copy = 1_000_000 * number, number % 4 == 0
        operations.append((number, 0, 1, at + 90_000, at + 800_000, 4 if is_copy else 2, 4 if is_copy else 1))
        calls.append((500 + number, 77, 78, at + 10_000, at + 20_000, 5 if is_copy else 3))
        links.append((500 + number, number))
        if is_copy:
            copies.append((500 + number, 4096))
    tables: dict[str, tuple[str, Sequence[Sequence[Any]]]] = {
        "rocpd_string": ("id, string", texts),
        "rocpd_op": ("id, gpuId, queueId, start, end, description_id, opType_id", operations),
        "rocpd_api": ("id, pid, tid, start, end, apiName_id", calls),
        "rocpd_api_ops": ("api_id, op_id", links),
        "rocpd_copyapi": ("api_ptr_id, size", copies),
    }
    return {"run/trace.rpd": database(tables)}

"""Small sound inputs made in code: every kind of file that ddprof reads, so small that most bytes of them matter."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from fuzzing.tree import Tree

BASE_NS = 1_760_000_000_000_000_000  # October 2025
STEP_US = 3_000
STEPS = 5
GROUP = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}
DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072, "computeMajor": 9}
DEVICE |= {"computeMinor": 0, "warpSize": 32, "numSms": 132}


def span(cat: str, name: str, ts: float, dur: float, pid: Any = 100, tid: Any = 100, **args: Any) -> dict[str, Any]:
    """A complete event; microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, stream: int, correlation: int, **args: Any) -> dict[str, Any]:
    """A kernel of device 0."""
    given = {"device": 0, "stream": stream, "correlation": correlation, "External id": correlation, **args}
    return span("kernel", name, ts, dur, 0, stream, **given)


def device_step(step: int, late_us: float) -> Iterator[dict[str, Any]]:
    """One step of a rank on a device whose loader is late by `late_us`."""
    at, number = 1_000 + step * STEP_US, 100 * step + 1
    yield span("user_annotation", f"ProfilerStep#{step}", at, STEP_US - 1, **{"External id": number})
    yield span("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 5, 50 + late_us)
    now = at + 60 + late_us
    copy = {"External id": number + 1, "correlation": number + 1}
    yield span("cuda_runtime", "cudaMemcpyAsync", now, 8, **copy, cbid=41)
    yield span(
        "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", now + 9, 30, 0, 7, **copy, bytes=4 << 20, device=0, stream=7
    )
    for at_op in range(3):
        ident = number + 2 + at_op
        shapes = {"Input Dims": [[64, 1024], [1024, 1024], []], "Input type": ["float", "float", "Scalar"]}
        values = {"Concrete Inputs": ["", "", "1"], "Sequence number": ident, "Fwd thread id": 0}
        yield span("cpu_op", "aten::addmm", now + 40, 30, **{"External id": ident}, **shapes, **values)
        yield span("cuda_runtime", "cudaLaunchKernel", now + 50, 6, correlation=ident, **{"External id": ident})
        flow = {"cat": "ac2g", "name": "ac2g", "id": ident}
        yield {"ph": "s", "pid": 100, "tid": 100, "ts": now + 50, **flow}
        yield {"ph": "f", "pid": 0, "tid": 7, "ts": now + 60, "bp": "e", **flow}
        yield kernel("sm90_xmma_gemm_f32f32_tf32f32", now + 60, 400, 7, ident, **{"est. achieved occupancy %": 50})
        now += 410
    yield from _collective(now, number + 10, step, at)
    yield span("user_annotation", "Optimizer.step#AdamW.step", now + 60, 90, **{"External id": number + 20})
    yield span("cuda_runtime", "cudaStreamSynchronize", now + 160, 500, correlation=number + 21)
    wait = {"stream": 7, "correlation": number + 21, "device": 0, "wait_on_stream": 20}
    recorded = {"wait_on_cuda_event_record_corr_id": number + 11}
    yield span("cuda_sync", "Stream Sync", now + 161, 490, -1, 7, **wait, **recorded)
    memory = {"Device Type": 1, "Device Id": 0, "Total Reserved": 8 << 30, "Total Allocated": 6 << 30, "Bytes": 4096}
    yield {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 100, "ts": now, "args": memory}
    yield span("python_function", "train.py(12): step", at + 2, STEP_US - 10, **{"Python id": 1, "Python parent id": 0})


def _collective(now: float, ident: int, step: int, start: float) -> Iterator[dict[str, Any]]:
    """An all-reduce that both ranks enter and that ends at the same time on both."""
    given = {"Collective name": "allreduce", "In msg nelems": 2 << 20, "Out msg nelems": 2 << 20, "Group size": 2}
    given |= {"dtype": "Float", "Process Group Name": "0", "Process Group Description": "default_pg"}
    given |= {"Process Group Ranks": "[0, 1]", "Seq": step + 1, "Rank": 0}
    yield span("cpu_op", "record_param_comms", now, 20, **{"External id": ident}, **given)
    yield span("cuda_runtime", "cudaLaunchKernelExC", now + 5, 6, correlation=ident, **{"External id": ident})
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    yield kernel(name, now + 12, start + 2_400 - now, 20, ident, **given)


def trace(rank: int, events: Sequence[Any], world_size: int = 2, backend: str = "nccl") -> bytes:
    """A trace as the profiler writes it, one event a line."""
    info = {"backend": backend, "rank": rank, "world_size": world_size, "pg_count": 1, "pg_config": [GROUP]}
    header = {"schemaVersion": 1, "deviceProperties": [DEVICE] if backend == "nccl" else [], "record_shapes": 1}
    header |= {"distributedInfo": info, "host_name": "node-a", "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS}
    named = [
        {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7 "}},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}},
    ]
    body = ",\n".join(json.dumps(event) for event in [*named, *events])
    return f'{json.dumps(header)[:-1]}, "traceEvents": [\n{body}\n], "traceName": "rank{rank}.json"}}\n'.encode()


def on_devices() -> Tree:
    """Two ranks on devices; the loader of rank 1 is late."""
    late_us = (0, 300)
    steps = [[e for step in range(STEPS) for e in device_step(step, late_us[rank])] for rank in (0, 1)]
    return {f"run/rank{rank}.pt.trace.json": trace(rank, steps[rank]) for rank in (0, 1)}


def cpu_step(step: int, ident: int) -> Iterator[dict[str, Any]]:
    """One step of a CPU rank under gloo."""
    at = 1_000 + step * STEP_US
    yield span("user_annotation", f"ProfilerStep#{step + 5}", at, STEP_US - 1)
    for phase, start, dur in (("data", 2, 300), ("forward", 310, 900), ("backward", 1_220, 1_300)):
        yield span("user_annotation", f"ddprof::{phase}", at + start, dur)
    shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    for start in (320, 600, 1_230):
        yield span("cpu_op", "aten::mm", at + start, 250, **{"External id": ident}, **shapes)
    yield span("cpu_op", "c10d::allreduce_", at + 1_700, 20, 100, 101, **{"External id": ident + 1})
    sizes = {"Input Dims": [[676]], "Input type": ["float"]}
    yield span("user_annotation", "gloo:all_reduce", at + 1_710, 700 - 90 * (step % 2), 100, 102, **sizes)
    yield span("user_annotation", "ddprof::optimizer", at + 2_530, 300)
    yield span("user_annotation", "Optimizer.step#AdamW.step", at + 2_540, 280)


def recorder_entry(number: int, created_ns: int) -> dict[str, Any]:
    """One collective of a flight recorder's dump."""
    entry: dict[str, Any] = {"record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"]}
    entry |= {"collective_seq_id": number + 1, "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce"}
    entry |= {"time_created_ns": created_ns, "time_discovered_started_ns": created_ns + 5_000}
    entry |= {"time_discovered_completed_ns": created_ns + 400_000, "input_sizes": [[676]], "input_dtypes": ["Float"]}
    entry |= {"output_sizes": [[676]], "output_dtypes": ["Float"], "state": "completed", "retired": True}
    return {**entry, "timeout_ms": 600_000, "is_p2p": False, "thread_id": "7", "duration_ms": 0.4}


def dump(rank: int, count: int = 6) -> dict[str, Any]:
    """A flight recorder's dump."""
    entries = [recorder_entry(n, BASE_NS + 1_700_000 + n * STEP_US * 1_000 + rank * 90_000) for n in range(count)]
    status = {"0": {"last_enqueued_collective": count, "last_started_collective": count}}
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": config, "pg_status": status, "comm_lib_version": "", "entries": entries}


def recorder_json() -> Tree:
    """Flight-recorder dumps of two ranks, as JSON."""
    return {f"run/fr_rank_{rank}.json": json.dumps(dump(rank)).encode() for rank in (0, 1)}


def recorder_pickle() -> Tree:
    """The same as pickles, which is how PyTorch writes them."""
    return {f"run/nccl_trace_rank_{rank}": pickle.dumps(dump(rank), protocol=4) for rank in (0, 1)}


def horovod() -> Tree:
    """A Horovod timeline of four ranks; rank 2 is late."""
    events: list[dict[str, Any]] = []
    for pid, tensor in enumerate(("grad/a", "grad/b")):
        events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": tensor}})
        for at in range(1_000, 9_000, 2_000):
            events.append({"name": "NEGOTIATE_ALLREDUCE", "ph": "B", "ts": at + pid * 700, "pid": pid})
            for rank in range(4):
                ready = at + pid * 700 + 10 * rank + (400 if rank == 2 else 0)
                events.append({"name": str(rank), "ph": "X", "ts": ready, "dur": 0, "pid": pid})
            events.append({"ph": "E", "ts": at + pid * 700 + 450, "pid": pid})
            events.append({"name": "ALLREDUCE", "ph": "B", "ts": at + pid * 700 + 455, "pid": pid})
            events.append({"ph": "E", "ts": at + pid * 700 + 600, "pid": pid})
    return {"run/timeline.json": json.dumps(events).encode()}


def tensorflow() -> Tree:
    """A trace as TensorFlow's viewer has it."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "stream #20(Kernel)"}},
        {"ph": "M", "pid": 9, "name": "process_name", "args": {"name": "/host:CPU"}},
    ]
    for at in range(0, 6_000, 1_000):
        events.append({"ph": "X", "pid": 9, "tid": 3, "ts": at, "dur": 900, "name": "train", "args": {"step_num": "1"}})
        events.append({"ph": "X", "pid": 1, "tid": 2, "ts": at + 50.5, "dur": 700.25, "name": "fusion_1", "args": {}})
        events.append({"ph": "B", "pid": 9, "tid": 4, "ts": at + 10, "name": "cudaLaunchKernel"})
        events.append({"ph": "E", "pid": 9, "tid": 4, "ts": at + 20})
    return {"run/t.trace.json": json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode()}


def nccl_profiler() -> Tree:
    """A log of NCCL's profiler plugin of two ranks."""
    records: list[dict[str, Any]] = [
        {"type": "ProfilerLifecycle", "func": "ProfilerInit", "gpuUuid": "GPU-1", "rank": 0}
    ]
    for number in range(6):
        for rank in (0, 1):
            at = 1_000_000 + number * 2_000 + rank * 300
            place = {"type": "ncclProfileColl", "rank": rank, "extCorrId": 10 * number + rank, "commId": "0xab"}
            details = {"func": "AllReduce", "seq": number, "count": 1 << 20, "dtype": "ncclFloat32", "nranks": 2}
            times = {"start": {"ts": at, "pid": 50 + rank}, "stop": {"ts": at + 900 - rank * 300}}
            records.append({**place, **times, "details": details, "eventAddr": "0x1"})
            run = {"type": "KERNEL", "name": "ncclDevKernel_AllReduce", "deviceId": rank, "gpuUuid": "GPU-1"}
            records.append({**run, "extCorrId": 10 * number + rank, **times, "details": {}})
    return {"run/nccl.jsonl": "".join(json.dumps(record) + "\n" for record in records).encode()}


def op_timeline() -> Tree:
    """Megatron operations of a pipeline of two stages."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": stage, "name": "thread_name", "args": {"name": f"PP rank {stage}"}}
        for stage in (0, 1)
    ]
    for step in (3, 4):
        for stage in (0, 1):
            for at, name in enumerate(("forward-compute", "forward-send", "backward-compute", "backward-send")):
                args = {"step": step, "mb_id": at // 2}
                ts = step * 10_000 + at * 1_000 + stage * 500
                dur = 700 + 200 * stage
                events.append({"ph": "X", "pid": 0, "tid": stage, "ts": ts, "dur": dur, "name": name, "args": args})
    return {"run/timeline.json": json.dumps({"traceEvents": events}).encode()}

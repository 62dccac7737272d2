"""Text around the events of a Kineto file: header keys, device properties, metadata events, window marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.oracle.rank import Rank
from benchmarks.oracle.simulate import Run

if TYPE_CHECKING:
    from benchmarks.oracle.kineto import TraceWriter

_NVIDIA: dict[str, Any] = {
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
    "sharedMemPerBlock": 49152,
}  # fmt: skip
_AMD: dict[str, Any] = {
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 64,
    "sharedMemPerBlock": 65536,
}  # fmt: skip
# (name, totalGlobalMem, computeMajor, computeMinor, numSms), as public traces of these devices show them
_MODELS = {
    "h100": ("NVIDIA H100 80GB HBM3", 84942979072, 9, 0, 132),
    "a100": ("NVIDIA A100-SXM4-80GB", 85097971712, 8, 0, 108),
    "v100": ("Tesla V100-SXM2-32GB", 34089730048, 7, 0, 80),
    "mi300x": ("AMD Instinct MI300X", 205571227648, 9, 4, 304),
    "mi250": ("AMD Instinct MI250X", 68702699520, 9, 0, 104),
}


def device_properties(device: str) -> dict[str, Any]:
    """`deviceProperties` of one device."""
    name, memory, major, minor, units = _MODELS[device]
    shared = _AMD if device.startswith("mi") else _NVIDIA
    return {
        "name": name, "totalGlobalMem": memory, "computeMajor": major, "computeMinor": minor, **shared, "numSms": units,
    }  # fmt: skip


def header(run: Run, rank: Rank, base_ns: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys before and after the events."""
    scenario = run.scenario
    form, vendor = scenario.format, scenario.cluster.vendor
    local = sum(host == scenario.cluster.hosts[rank.rank] for host in scenario.cluster.hosts)
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": i, **device_properties(scenario.cluster.device)} for i in range(min(8, max(local, 1)))
        ],
    }
    if vendor == "amd":
        head |= {"roctracer_version": 4.1, "hip_runtime_version": 60443483, "hip_driver_version": 60443483}
    else:
        head |= {"cupti_version": 24, "cuda_runtime_version": 12060, "cuda_driver_version": 12080}
    if form.distributed_info:
        head["distributedInfo"] = _distributed(run, rank)
    if form.shapes:
        head["record_shapes"] = 1
    if form.stacks:
        head["with_stack"] = 1
    if form.memory:
        head["profile_memory"] = 1
    head["trace_id"] = f"{scenario.seed * 1009 + rank.rank:032X}"
    head["displayTimeUnit"] = "ms"
    if form.time == "base":
        head["baseTimeNanoseconds"] = base_ns
    return head, {"traceName": f"./trace_{rank.rank}.json"}


def _distributed(run: Run, rank: Rank) -> dict[str, Any]:
    groups = {group.name: group for group in rank.layout.groups.values()}
    config = [
        {
            "pg_name": g.name,
            "pg_desc": g.desc,
            "backend_config": "cuda:nccl",
            "pg_size": len(g.ranks),
            "ranks": list(g.ranks),
        }
        for g in groups.values()
    ]
    info: dict[str, Any] = {"backend": "nccl", "rank": rank.rank, "world_size": run.world.size}
    if run.scenario.format.names == "new":
        info |= {"pg_count": len(config), "pg_config": config, "nccl_version": "2.21.5"}
    return info


def metadata(writer: TraceWriter, begin: float, end: float) -> list[str]:
    """Process and thread names, and the window of the recording."""
    at = writer.moment(begin)
    rows = [*_process(writer.pid, at, "CPU", writer.pid)]
    rows += [line for i in range(8) for line in _process(i, at, f"GPU {i}", 5000000 + i)]
    used = sorted({op.stream for op in writer.rank.ops})
    threads = [(writer.device, writer.streams[s], f"stream {writer.streams[s]} ") for s in used]
    threads += [(writer.pid, writer.pid, f"thread {writer.pid} (python)")]
    threads += [(writer.pid, writer.pid + 711, f"thread {writer.pid + 711} (pt_autograd_0)")]
    for pid, tid, name in threads:
        place = f'"ph": "M", {at}, "pid": {pid}, "tid": {tid}'
        rows.append(f'  {{"name": "thread_name", {place}, "args": {{"name": "{name}"}}}}')
        rows.append(f'  {{"name": "thread_sort_index", {place}, "args": {{"sort_index": {tid}}}}}')
    window = writer.times(begin, end - begin)
    rows.append(
        f'  {{"ph": "X", "cat": "Trace", {window}, "pid": "Spans", "tid": "PyTorch Profiler", '
        '"name": "PyTorch Profiler (0)", "args": {"Op count": 0}}'
    )
    rows.append(
        '  {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", '
        f'"tid": "Trace PyTorch Profiler", {at}}}'
    )
    rows.append(f'  {{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", {writer.moment(end)}}}')
    return rows


def _process(pid: int, at: str, label: str, order: int) -> list[str]:
    place = f'"ph": "M", {at}, "pid": {pid}, "tid": 0'
    return [
        f'  {{"name": "process_name", {place}, "args": {{"name": "python"}}}}',
        f'  {{"name": "process_labels", {place}, "args": {{"labels": "{label}"}}}}',
        f'  {{"name": "process_sort_index", {place}, "args": {{"sort_index": {order}}}}}',
    ]

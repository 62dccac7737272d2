"""Traces in Chrome's format of other tools than PyTorch."""

import json
from pathlib import Path
from typing import Any

import pytest
from reading import names, traces

from ddprof.model import Kind, RankTrace


def span(pid: int, tid: int, name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": {}}


def jax(folder: Path, device: str, *lines: str) -> RankTrace:
    """A trace of JAX's viewer: a loop of two operations on each of some lines of a device, and a host."""
    events: list[dict[str, Any]] = []
    for pid, process, threads in ((3, device, lines), (7, "/host:CPU", ("python",))):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}})
        for tid, thread in enumerate(threads):
            events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": thread}})
    for tid in range(len(lines)):
        events += [span(3, tid, "while.1", 100, 700), span(3, tid, "fusion.7", 100, 300)]
        events.append(span(3, tid, "all-reduce.3", 400, 300))
    events.append(span(7, 0, "zero_grad", 0, 1000))
    (folder / "jax.trace.json").write_text(json.dumps({"traceEvents": events}))
    (trace,) = traces(folder)
    return trace


@pytest.mark.parametrize("more", [(), ("Steps", "XLA Modules", "Framework Ops")])
def test_xla_operations_are_the_work_of_a_tpu_but_repeat_that_of_streams(tmp_path: Path, more: tuple[str, ...]) -> None:
    on_tpu = jax(tmp_path, "/device:TPU:0", "XLA Ops", *more)
    assert names(on_tpu, Kind.KERNEL) == ["fusion.7", "all-reduce.3"]
    assert not any("no device events" in note.issue for note in on_tpu.health)
    assert len(names(jax(tmp_path, "/device:GPU:0", "Stream #1(Compute)", "XLA Ops", *more), Kind.KERNEL)) == 3


@pytest.mark.parametrize("name", ["zero_grad", "zeros", "cumsum", "custom_op", "current_loss"])
def test_functions_that_begin_like_a_call_of_a_driver_are_none(tmp_path: Path, name: str) -> None:
    calls = ["cudaLaunchKernel", "cuMemcpyAsync", "hipFree", "hsa_queue_create", "aclrtMemcpy", "zeInit"]
    events = [span(1, 1, each, 10 * at, 5) for at, each in enumerate([*calls, name])]
    (tmp_path / "t.json").write_text(json.dumps(events))
    (trace,) = traces(tmp_path)
    assert (names(trace, Kind.RUNTIME), names(trace, Kind.CPU_OP)) == (calls, [name])


@pytest.mark.parametrize(
    ("process", "kind"),
    [
        ("/device:GPU:0", "cuda"),
        ("GPU1", "cuda"),
        ("/device:TPU:3", "unknown"),
        ("/device:XPU:0", "xpu"),
        ("Ascend Hardware", "npu"),
        ("NPU 2", "npu"),
    ],
)
def test_a_device_is_what_its_process_says(tmp_path: Path, process: str, kind: str) -> None:
    assert jax(tmp_path, process, "XLA Ops").device.kind == kind


def test_streams_have_the_numbers_that_their_names_begin_with(tmp_path: Path) -> None:
    trace = jax(tmp_path, "/device:GPU:0", "Stream #13(Compute)", "Stream #14(MemcpyH2D)", "Stream #20(MemcpyD2H)")
    assert [row["stream"] for row in trace.tracks.rows() if row["device"] is not None] == [13, 14, 20]


def test_torch_npu_writes_a_list_whose_device_events_have_no_category(tmp_path: Path) -> None:
    """A list as torch_npu of 2024 writes it: operator, call and device on three processes, tied by arrows."""
    at = "17041615114{:05d}.500".format
    ascend = [(1, "Python"), (800, "Ascend Hardware"), (43, "CANN"), (44, "Overlap Analysis")]
    events: list[dict[str, Any]] = [
        {"ph": "X", "pid": 1, "tid": 1, "name": "aten::add", "ts": at(10), "dur": 9.0, "cat": "cpu_op", "args": {}},
        {"ph": "X", "pid": 43, "tid": 2, "name": "AscendCL@aclnnAdd", "ts": at(20), "dur": 9.0, "args": {}},
        {"ph": "X", "pid": 43, "tid": 2, "name": "AscendCL@Add_Tiling", "ts": at(21), "dur": 1.0, "args": {}},
        {"ph": "X", "pid": 800, "tid": 3, "name": "aclnnAdd_AddAiCore_Add", "ts": at(40), "dur": 2.5, "args": {}},
        {"ph": "X", "pid": 44, "tid": 0, "name": "Free", "ts": at(43), "dur": 99.0},
        *({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}} for pid, name in ascend),
    ]
    for category, pid, tid, start in (("HostToDevice", 43, 2, 25), ("async_npu", 1, 1, 15)):
        arrow = {"name": category, "cat": category, "id": "7"}
        events += [{"ph": "s", "pid": pid, "tid": tid, "ts": at(start), **arrow}]
        events += [{"ph": "f", "pid": 800, "tid": 3, "ts": at(40), **arrow}]
    (tmp_path / "trace_view.json").write_text(json.dumps(events))
    (trace,) = traces(tmp_path)
    assert (trace.device.kind, names(trace, Kind.KERNEL)) == ("npu", ["aclnnAdd_AddAiCore_Add"])
    assert names(trace, Kind.RUNTIME) == ["aclnnAdd", "Add_Tiling"]
    linked = {trace.strings[row["name"]] for row in trace.events.rows() if row["correlation"] is not None}
    assert linked == {"aclnnAdd", "aclnnAdd_AddAiCore_Add"}  # not the part of the call that ended before


@pytest.mark.parametrize(
    ("process", "category", "kind"),
    [
        ("/host:CPU", "", "cpu"),
        ("python", "cpu_op", "cpu"),
        ("DataIterator", "", "unknown"),
        ("DataIterator", "x", "unknown"),
    ],
)
def test_spans_that_nobody_calls_operators_are_of_no_known_device(
    tmp_path: Path, process: str, category: str, kind: str
) -> None:
    named = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}}
    work = [{**span(1, 1, "dataset::GetNext", 100.0 * at, 5), "cat": category} for at in range(4)]
    (tmp_path / "t.json").write_text(json.dumps([named, *work]))
    (trace,) = traces(tmp_path)
    assert trace.device.kind == kind


def timeline(folder: Path, *processes: str) -> RankTrace:
    """A timeline of a TensorFlow 1 session: one operator in each of these processes."""
    events: list[dict[str, Any]] = []
    for pid, process in enumerate(processes):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}})
        events.append(span(pid, 0, f"Conv2D-{pid}", 100, 300))
    (folder / "timeline.json").write_text(json.dumps({"traceEvents": events}))
    (trace,) = traces(folder)
    return trace


def test_operators_of_a_tensorflow_timeline_are_the_hosts_and_its_sums_over_streams_no_work(tmp_path: Path) -> None:
    gpu = "/device:GPU:0"
    job = "/job:localhost/replica:0/task:0"
    streams = [f"{gpu}/stream:{which} Compute" for which in ("13", "18", "all")]
    trace = timeline(tmp_path, f"{job}{gpu} Compute", *streams, f"{gpu}/memcpy Compute")
    assert (names(trace, Kind.KERNEL), names(trace, Kind.CPU_OP)) == (["Conv2D-1", "Conv2D-2"], ["Conv2D-0"])
    assert sorted(trace.tracks["stream"][trace.tracks["device"] == 0].tolist()) == [13, 18]


@pytest.mark.parametrize("cpu", ["/device:CPU:0", "/cpu:0"])
def test_a_tensorflow_timeline_of_a_cpu_is_of_a_cpu(tmp_path: Path, cpu: str) -> None:
    assert timeline(tmp_path, f"/job:localhost/replica:0/task:0{cpu} Compute").device.kind == "cpu"

"""Traces in Chrome's format of other tools than PyTorch."""

from pathlib import Path
from typing import Any

import pytest
from reading import json_trace, names

from ddprof.model import Kind, RankTrace


def span(pid: int, tid: int, name: str, ts: Any, dur: float, **more: str) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": {}, **more}


def named(pid: int, name: str, what: str = "process_name", **more: int) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "name": what, "args": {"name": name}, **more}


def jax(folder: Path, device: str, *lines: str) -> RankTrace:
    """A trace of JAX's viewer: a loop of two operations on each of some lines of a device, and a host."""
    events = [named(3, device), named(7, "/host:CPU"), named(7, "python", "thread_name", tid=0)]
    for tid, line in enumerate(lines):
        events += [named(3, line, "thread_name", tid=tid), span(3, tid, "while.1", 100, 700)]
        events += [span(3, tid, "fusion.7", 100, 300), span(3, tid, "all-reduce.3", 400, 300)]
    return json_trace(folder / "jax.trace.json", {"traceEvents": [*events, span(7, 0, "zero_grad", 0, 1000)]})


@pytest.mark.parametrize("more", [(), ("Steps", "XLA Modules", "Framework Ops")])
def test_xla_operations_are_the_work_of_a_tpu_but_repeat_that_of_streams(tmp_path: Path, more: tuple[str, ...]) -> None:
    on_tpu = jax(tmp_path, "/device:TPU:0", "XLA Ops", *more)
    assert names(on_tpu, Kind.KERNEL) == ["fusion.7", "all-reduce.3"]
    assert not any("no device events" in note.issue for note in on_tpu.health)
    assert len(names(jax(tmp_path, "/device:GPU:0", "Stream #1(Compute)", "XLA Ops", *more), Kind.KERNEL)) == 3


@pytest.mark.parametrize("name", ["zero_grad", "zeros", "cumsum", "custom_op", "current_loss"])
def test_functions_that_begin_like_a_call_of_a_driver_are_none(tmp_path: Path, name: str) -> None:
    calls = ["cudaLaunchKernel", "cuMemcpyAsync", "hipFree", "hsa_queue_create", "aclrtMemcpy", "zeInit"]
    trace = json_trace(tmp_path / "t.json", [span(1, 1, each, 10 * at, 5) for at, each in enumerate([*calls, name])])
    assert (names(trace, Kind.RUNTIME), names(trace, Kind.CPU_OP)) == (calls, [name])


KINDS = {"/device:GPU:0": "cuda", "GPU1": "cuda", "/device:TPU:3": "unknown", "/device:XPU:0": "xpu"}
KINDS |= {"Ascend Hardware": "npu", "NPU 2": "npu"}


@pytest.mark.parametrize(("process", "kind"), KINDS.items())
def test_a_device_is_what_its_process_says(tmp_path: Path, process: str, kind: str) -> None:
    assert jax(tmp_path, process, "XLA Ops").device.kind == kind


def test_streams_have_the_numbers_that_their_names_begin_with(tmp_path: Path) -> None:
    trace = jax(tmp_path, "/device:GPU:0", "Stream #13(Compute)", "Stream #14(MemcpyH2D)", "Stream #20(MemcpyD2H)")
    assert [row["stream"] for row in trace.tracks.rows() if row["device"] is not None] == [13, 14, 20]


def test_torch_npu_writes_a_list_whose_device_events_have_no_category(tmp_path: Path) -> None:
    """A list as torch_npu of 2024 writes it: operator, call and device on three processes, tied by arrows."""
    at = "17041615114{:05d}.500".format
    ascend = {1: "Python", 800: "Ascend Hardware", 43: "CANN", 44: "Overlap Analysis"}
    events = [
        span(1, 1, "aten::add", at(10), 9.0, cat="cpu_op"),
        span(43, 2, "AscendCL@aclnnAdd", at(20), 9.0),
        span(43, 2, "AscendCL@Add_Tiling", at(21), 1.0),
        span(800, 3, "aclnnAdd_AddAiCore_Add", at(40), 2.5),
        span(44, 0, "Free", at(43), 99.0),
        *(named(pid, name, tid=0) for pid, name in ascend.items()),
    ]
    for category, pid, tid, start in (("HostToDevice", 43, 2, 25), ("async_npu", 1, 1, 15)):
        arrow = {"name": category, "cat": category, "id": "7"}
        events.append({"ph": "s", "pid": pid, "tid": tid, "ts": at(start), **arrow})
        events.append({"ph": "f", "pid": 800, "tid": 3, "ts": at(40), **arrow})
    trace = json_trace(tmp_path / "trace_view.json", events)
    assert (trace.device.kind, names(trace, Kind.KERNEL)) == ("npu", ["aclnnAdd_AddAiCore_Add"])
    assert names(trace, Kind.RUNTIME) == ["aclnnAdd", "Add_Tiling"]
    linked = {trace.strings[row["name"]] for row in trace.events.rows() if row["correlation"] is not None}
    assert linked == {"aclnnAdd", "aclnnAdd_AddAiCore_Add"}  # not the part of the call that ended before


WORK = {("/host:CPU", ""): "cpu", ("python", "cpu_op"): "cpu"}  # process and category -> kind of device
WORK |= {("DataIterator", category): "unknown" for category in ("", "x")}


@pytest.mark.parametrize(("told", "kind"), WORK.items())
def test_spans_that_nobody_calls_operators_are_of_no_known_device(tmp_path: Path, told: Any, kind: str) -> None:
    work = [span(1, 1, "dataset::GetNext", 100.0 * at, 5, cat=told[1]) for at in range(4)]
    assert json_trace(tmp_path / "t.json", [named(1, told[0]), *work]).device.kind == kind


JOB = "/job:localhost/replica:0/task:0"


def timeline(folder: Path, *processes: str) -> RankTrace:
    """A timeline of a TensorFlow 1 session: one operator in each of these processes."""
    events = [named(pid, f"{process} Compute") for pid, process in enumerate(processes)]
    events += [span(pid, 0, f"Conv2D-{pid}", 100, 300) for pid in range(len(processes))]
    return json_trace(folder / "timeline.json", {"traceEvents": events})


def test_operators_of_a_tensorflow_timeline_are_the_hosts_and_its_sums_over_streams_no_work(tmp_path: Path) -> None:
    gpu = "/device:GPU:0"
    streams = [f"{gpu}/stream:{which}" for which in ("13", "18", "all")]
    trace = timeline(tmp_path, f"{JOB}{gpu}", *streams, f"{gpu}/memcpy")
    assert (names(trace, Kind.KERNEL), names(trace, Kind.CPU_OP)) == (["Conv2D-1", "Conv2D-2"], ["Conv2D-0"])
    assert sorted(trace.tracks["stream"][trace.tracks["device"] == 0].tolist()) == [13, 18]


@pytest.mark.parametrize("cpu", ["/device:CPU:0", "/cpu:0"])
def test_a_tensorflow_timeline_of_a_cpu_is_of_a_cpu(tmp_path: Path, cpu: str) -> None:
    assert timeline(tmp_path, f"{JOB}{cpu}").device.kind == "cpu"

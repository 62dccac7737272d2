"""The table of formats, asked in an order that is right; Chrome's format, flight recorders, Horovod and Megatron."""

import ast
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import FORMATS, json_trace, names, one_trace, traces

from ddprof.errors import NoUsableInput
from ddprof.model import Kind, RankTrace
from ddprof.readers import discover
from ddprof.readers import formats as room
from ddprof.readers.columns.groups import number_in_communicator
from ddprof.readers.format import Sample
from ddprof.readers.formats import formats
from ddprof.readers.formats.op_timeline import TimelineOperations, _with_waits
from ddprof.readers.side_files.lenient import load_dump
from ddprof.slice import all_slices

FOLDER = Path(room.__file__).parent
SOURCES = [*FOLDER.glob("[!_]*.py"), *FOLDER.glob("*/__init__.py")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_each_ends_in_its_format_and_is_named_after_it(source: Path) -> None:
    last = ast.parse(source.read_text()).body[-1]
    assert isinstance(last, ast.Assign) and ast.unparse(last.targets[0]) == "FORMAT"
    assert (source.stem if source.parent == FOLDER else source.parent.name) in formats()
    assert len(formats()) == len(SOURCES) + sum(len(part.formats) for part in all_slices())


ORDERS = {  # all that recognise a text, in the order in which they are asked
    b'{"traceEvents": [{"ph": "X", "name": "forward-compute"}]}': ["op_timeline", "kineto"],
    b'[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE"}]': ["horovod", "chrome"],
    b'[{"ph": "X", "cat": "cpu_op"}]': ["kineto", "chrome"],
    b"SQLite format 3\0 rocpd_api": ["rpd", "nsys"],
}


@pytest.mark.parametrize(("text", "names"), ORDERS.items())
def test_marks_of_its_own_go_before_what_takes_any_events(text: bytes, names: list[str]) -> None:
    assert [name for name, candidate in formats().items() if candidate.recognise(Sample(text))] == names


def test_nccl_profiler_kernels_belong_to_the_rank_that_launched_them(shared_dir: Path) -> None:
    ranks = traces(shared_dir / FORMATS / "nccl_profiler_jsonl")
    assert [t.identity.local_device for t in ranks] == [0, 1, 2, 3]
    assert [names(t, Kind.KERNEL) for t in ranks] == [["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]] * 4
    for trace in ranks:
        (row,) = trace.collectives.rows()
        assert (row["in_bytes"], row["group_size"]) == (4 * 33554432, 4)
        assert row["seq"] == number_in_communicator("AllReduce", 0)


def test_tensorflow_without_device_events_says_so_and_rocprof_names_processes_in_texts(shared_dir: Path) -> None:
    trace = one_trace(shared_dir / FORMATS / "tensorflow")
    assert "train_function" in names(trace, Kind.CPU_OP)
    assert any("8 devices but no device events" in h.issue for h in trace.health)
    rocprof = one_trace(Path(__file__).parent / "rocprof.json")
    told = [list(names(rocprof, kind)) for kind in (Kind.RUNTIME, Kind.MEMCPY, Kind.KERNEL)]
    assert told == [["hipMemcpy"], ["Memcpy DtoH"], ["vector_add"]]


def test_flight_recorder_json_and_pickle_agree_and_dumps_alone_are_ranks(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / FORMATS / "flight_recorder"
    for rank in range(4):
        from_json, unfit = load_dump((folder / f"fr_rank_{rank}.json").read_bytes())
        from_pickle, unfit_too = load_dump((folder / f"nccl_trace_rank_{rank}").read_bytes())
        assert unfit == unfit_too == [] and [e.collective_seq_id for e in from_json.entries] == list(range(1, 14))
        assert [e.profiling_name for e in from_json.entries] == [e.profiling_name for e in from_pickle.entries]
        assert from_pickle.pg_config == from_json.pg_config
    ranks = traces(folder)  # each is one source though it is there twice
    assert [t.identity.rank for t in ranks] == [0, 1, 2, 3] and all(t.events["ts_ns"].min() > 10**18 for t in ranks)
    for name in ("rank0.0.fr.json", "rank1.0.fr.json"):
        (tmp_path / name).symlink_to(shared_dir / "traces/cpu_gloo/ddp-cnn-2r-slowrank" / name)
    ranks = traces(tmp_path)
    for rank, trace in enumerate(ranks):
        assert (trace.identity.rank, trace.identity.world_size, trace.identity.backend) == (rank, 2, "gloo")
        assert len(trace.collectives) == len(trace.flight_recorder) == 40 and trace.has_base_time
        assert trace.process_groups[0].ranks == (0, 1) and (trace.collectives["in_bytes"] > 0).all()
    assert (ranks[0].collectives["seq"] == ranks[1].collectives["seq"]).all()


ENTRY = {"collective_seq_id": 1, "profiling_name": "gloo:all_reduce", "process_group": ["0", "default_pg"]}
ENTRY |= {"time_created_ns": 10**18, "input_sizes": [[2, 3]], "input_dtypes": ["Float"], "is_p2p": False}
ODD = [None, True, -1, 2**63, 10**30, 1.5, "", "x\x1b\n", [], {}, [[]], [None], [[[1]]], {"a": 1}]


@pytest.mark.parametrize("field", [*ENTRY, "time_discovered_started_ns", "time_discovered_completed_ns"])
@pytest.mark.parametrize("value", ODD, ids=str)
def test_one_odd_value_costs_no_other_entry(tmp_path: Path, field: str, value: object) -> None:
    entries = [ENTRY, {**ENTRY, field: value}, value]
    trace = json_trace(tmp_path / "fr_rank_0.json", {"pg_status": {}, "pg_config": {}, "entries": entries})
    assert len(trace.collectives) in (1, 2) and trace.collectives["in_bytes"][0] == 24
    assert any("not of the type documented" in note.issue for note in trace.health) or value in (None, {})


def test_dumps_in_an_archive_are_a_rank_each_and_one_without_times_is_refused(tmp_path: Path) -> None:
    dump = json.dumps({"pg_status": {}, "pg_config": {}, "entries": [ENTRY]})
    with zipfile.ZipFile(tmp_path / "dumps.zip", "w") as archive:
        for rank in range(4):
            archive.writestr(f"run/fr_rank_{rank}.json", dump)
    assert [t.identity.rank for t in traces(tmp_path)] == [0, 1, 2, 3]
    with pytest.raises(NoUsableInput, match="1 collectives without times"):
        json_trace(tmp_path / "fr.json", {"pg_status": {}, "entries": [{**ENTRY, "time_created_ns": 0}]})


def test_horovod_rank_seven_is_last(shared_dir: Path) -> None:
    by_rank = {t.identity.rank: t for t in traces(shared_dir / FORMATS / "horovod_timeline")}
    assert sorted(by_rank) == [0, 1, 2, 4, 5, 6, 7] and by_rank[7].identity.world_size == 8
    arrival: dict[int, dict[int, int]] = {}
    for rank, trace in by_rank.items():
        for call in trace.collectives.rows():
            arrival.setdefault(call["seq"], {})[rank] = int(trace.events["ts_ns"][call["row"]])
    last = [max(its, key=lambda r: its[r]) for its in arrival.values()]
    assert (len(last), last.count(7)) == (90, 83)
    assert all(len(names(t, Kind.KERNEL)) == len(t.collectives) for t in by_rank.values())


PIDS = {"w": 0, "a": 1, "b": 2}


def horovod(folder: Path, events: list[dict[str, Any]]) -> list[RankTrace]:
    """The ranks of a timeline of these events."""
    (folder / "timeline.json").write_text(json.dumps(events))
    return traces(folder)


def marked_steps(trace: RankTrace) -> list[tuple[float, float]]:
    """Start and length of each step, s."""
    marks = trace.events.take(trace.events["kind"] == Kind.ANNOTATION)
    start_s, length_s = marks["ts_ns"] / 1e9, marks["dur_ns"] / 1e9
    return list(zip((start_s - start_s[0]).round(6).tolist(), length_s.tolist(), strict=True))


def negotiation(op: str, tensor: str, start_s: float, ready_s: dict[int, float], end_s: float) -> list[dict[str, Any]]:
    """Events of a negotiation; `ready_s`: when each rank was ready."""
    begin = {"ph": "B", "name": f"NEGOTIATE_{op}", "ts": start_s * 1e6}
    ready = [{"ph": "X", "name": str(rank), "ts": at * 1e6, "dur": 0} for rank, at in ready_s.items()]
    return [{"pid": PIDS[tensor], **event} for event in (begin, *ready, {"ph": "E", "ts": end_s * 1e6})]


def training(count: int) -> list[dict[str, Any]]:
    """Parameters are broadcast for 30 s, then every second two tensors are reduced side by side."""
    events = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}} for name, pid in PIDS.items()]
    events += negotiation("BROADCAST", "w", 0.0, {1: 0.0, 0: 30.0}, 30.1)
    for at, tensor, later in ((31.0 + step, *of) for step in range(count) for of in (("a", 0.0), ("b", 0.1))):
        events += negotiation("ALLREDUCE", tensor, at + later, {0: at + later, 1: at + 0.3}, at + 0.6 + later)
    return events


def test_each_step_reduces_the_same_tensors_once_side_by_side_or_the_window_is_one(tmp_path: Path) -> None:
    assert [marked_steps(trace) for trace in horovod(tmp_path, training(1))] == [[(0.0, 31.7)]] * 2
    ranks = horovod(tmp_path, training(4))
    assert any("took 30.1 s" in note.issue and note.effect == "not part of a step" for note in ranks[0].health)
    for trace in ranks:
        assert marked_steps(trace) == [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 0.7)]
        kernels = trace.events.take(trace.events["kind"] == Kind.KERNEL)
        for track in np.unique(kernels["track"]):
            mine = kernels.take(kernels["track"] == track)
            assert (mine["ts_ns"][1:] >= (mine["ts_ns"] + mine["dur_ns"])[:-1]).all()
        assert trace.device.kind == "unknown"


def test_collectives_without_a_begin_or_an_end_are_left_out_and_said(tmp_path: Path) -> None:
    events = training(6)
    holes = [event for at, event in enumerate(events) if at % 7 != 3]
    for kept, severities in ((events[:-1], set()), (events[:-4] + events[-3:], {"error"}), (holes, {"error"})):
        for trace in horovod(tmp_path, kept):
            assert {note.severity for note in trace.health if "are missing beside" in note.issue} == severities
    events = training(3)
    events.remove([event for event in events if event["ph"] == "B"][3])
    for trace in horovod(tmp_path, events):  # a collective ends before one whose begin is missing
        lengths_s = trace.events["dur_ns"][trace.events["kind"] == Kind.KERNEL] / 1e9
        assert len(lengths_s) == 6 and (lengths_s[lengths_s < 30] < 0.8).all()
    cached = negotiation("ALLREDUCE", "a", 40.0, {}, 40.1)  # names no rank: all are in it from its begin
    cached += [{"pid": 1, "ph": ph, "name": "ALLREDUCE", "ts": at * 1e6} for ph, at in (("B", 40.2), ("E", 40.9))]
    for trace in horovod(tmp_path, training(3) + cached):
        assert trace.events["dur_ns"][trace.events["ts_ns"] == 40.2e9].tolist() == [700_000_000]
    *begun, _ = negotiation("ALLREDUCE", "a", 1e-5, {4: 1.2e-5}, 2e-5)
    with pytest.raises(NoUsableInput, match="no collective began and ended: it was cut off"):
        horovod(tmp_path, begun)


FORWARD = {"ph": "X", "pid": 0, "tid": 0, "name": "forward-compute", "dur": 5}
STAGE = {"ph": "M", "pid": 0, "tid": 0, "name": "thread_name"}
MEGATRON = "traces/multi_rank/megatron_pp_last_stage_slow_8gpu"


@pytest.fixture(scope="module")
def workers(shared_dir: Path) -> list[RankTrace]:
    return traces(shared_dir / MEGATRON)


def test_pipeline_timeline_workers_and_their_messages_pair_up(workers: list[RankTrace]) -> None:
    assert [t.identity.rank for t in workers] == list(range(8))
    forward = [t.events["name"] == list(t.strings).index("forward-compute") for t in workers]
    compute = [float(np.median(t.events["dur_ns"][mine])) for t, mine in zip(workers, forward, strict=True)]
    assert min(compute[6:]) > 1.15 * max(compute[:6])  # the last stage is slow
    for trace in workers:
        marks = trace.events.take(trace.events["kind"] == Kind.ANNOTATION)
        np.testing.assert_array_equal(marks["ts_ns"][1:], (marks["ts_ns"] + marks["dur_ns"])[:-1])
        assert len(marks) == 32 and abs(float(marks["dur_ns"].mean()) / 1e9 - 2.2144) < 0.001
    calls = [(t.strings[row["op"]], t.identity.rank, row) for t in workers for row in t.collectives.rows()]
    sent = {(rank, row["dst"]) for op, rank, row in calls if op == "send"}
    assert sent == {(row["src"], rank) for op, rank, row in calls if op == "recv"} and len(sent) == 12


def test_timeline_json_gives_the_parquets_waits(workers: list[RankTrace], shared_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "timeline-ST.json.gz").symlink_to(shared_dir / MEGATRON / "timeline-ST.json.gz")
    from_json = traces(tmp_path)
    for a, b in zip(from_json, workers, strict=True):
        busy_a, busy_b = (int(t.events["dur_ns"][t.events["kind"] == Kind.KERNEL].sum()) for t in (a, b))
        assert abs(busy_a - busy_b) < 0.05 * busy_b
    assert "transfers only, no waits" in from_json[0].health[0].issue


def starts_with_waits(*spans: tuple[str, float, float]) -> list[float]:
    """Starts of one worker's operations (s), their waits included. Spans: name, start and length of transfer."""
    names, starts_s, lengths_s = zip(*spans, strict=True)
    start_ns, dur_ns = ((np.array(times_s) * 1e9).round().astype(np.int64) for times_s in (starts_s, lengths_s))
    zeros = dict.fromkeys(("dp", "stage", "step"), np.zeros(len(spans), np.int64))
    times = {"start_ns": start_ns, "dur_ns": dur_ns}
    mine = TimelineOperations(**zeros, **times, name=np.array(names, object), states_waits=False)
    return [float(start) / 1e9 for start in _with_waits(mine, [(0, 0, 10**11)])]


def test_a_call_waits_from_the_end_of_the_computation_before_it() -> None:
    assert starts_with_waits(("forward-compute", 1.0, 1.0), ("forward-send", 5.0, 0.1)) == [1.0, 2.0]
    # Stamped by its other side, it waits for no earlier computation.
    spans = (("backward-compute", 0.0, 1.0), ("forward-compute", 1.0, 1.0001), ("forward-send", 2.0, 0.1))
    assert starts_with_waits(*spans)[2] == 2.0
    # What one batch moves together waited equally long.
    spans = (("forward-compute", 0.0, 1.0), ("forward-send", 4.0, 0.1), ("backward-recv", 4.00001, 0.1))
    assert starts_with_waits(*spans)[1:] == [1.0, 1.0]


def test_the_last_stage_sends_to_the_first_where_stages_have_several_chunks(tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    args = {"step": 1, "model_chunk": 1, "mb_id": 0}
    for tid, name in enumerate(("forward-recv", "forward-compute", "forward-send")):
        events.append({**STAGE, "tid": tid, "args": {"name": f"PP rank {tid}"}})
        events.append({**FORWARD, "tid": tid, "name": name, "ts": 10, "args": args})
    (tmp_path / "t.json").write_text(json.dumps(events))
    first, _, last = traces(tmp_path)
    assert [row["src"] for row in first.collectives.rows()] == [2]
    assert [row["dst"] for row in last.collectives.rows()] == [0]


def test_a_timeline_without_stages_costs_no_other(tmp_path: Path) -> None:
    events = [{**FORWARD, "ts": 100 * step, "args": {"step": step, "mb_id": 0}} for step in range(3)]
    for thread in ("PP rank 0", "main"):
        (tmp_path / f"{thread}.json").write_text(json.dumps([{**STAGE, "args": {"name": thread}}, *events]))
    given = discover([tmp_path])
    assert [source.path for source in given.sources] == [str(tmp_path / "PP rank 0.json")]
    assert any("which pipeline stage" in note.issue for note in given.health)


def drawn(pid: int | str, tid: int, name: str, ts: Any, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": {}, **more}


def metadata(pid: int, name: str, what: str = "process_name", **more: int) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "name": what, "args": {"name": name}, **more}


def jax(folder: Path, device: str, *lines: str) -> RankTrace:
    """A trace of JAX's viewer: a loop of two operations on each of some lines of a device, and a host."""
    events = [metadata(3, device), metadata(7, "/host:CPU"), metadata(7, "python", "thread_name", tid=0)]
    for tid, line in enumerate(lines):
        events += [metadata(3, line, "thread_name", tid=tid), drawn(3, tid, "while.1", 100, 700)]
        events += [drawn(3, tid, "fusion.7", 100, 300), drawn(3, tid, "all-reduce.3", 400, 300)]
    return json_trace(folder / "jax.trace.json", {"traceEvents": [*events, drawn(7, 0, "zero_grad", 0, 1000)]})


@pytest.mark.parametrize("more", [(), ("Steps", "XLA Modules", "Framework Ops")])
def test_xla_operations_are_the_work_of_a_tpu_but_repeat_that_of_streams(tmp_path: Path, more: tuple[str, ...]) -> None:
    on_tpu = jax(tmp_path, "/device:TPU:0", "XLA Ops", *more)
    assert names(on_tpu, Kind.KERNEL) == ["fusion.7", "all-reduce.3"]
    assert not any("no device events" in note.issue for note in on_tpu.health)
    assert len(names(jax(tmp_path, "/device:GPU:0", "Stream #1(Compute)", "XLA Ops", *more), Kind.KERNEL)) == 3


@pytest.mark.parametrize("name", ["zero_grad", "zeros", "cumsum", "custom_op", "current_loss"])
def test_functions_that_begin_like_a_call_of_a_driver_are_none(tmp_path: Path, name: str) -> None:
    calls = ["cudaLaunchKernel", "cuMemcpyAsync", "hipFree", "hsa_queue_create", "aclrtMemcpy", "zeInit"]
    trace = json_trace(tmp_path / "t.json", [drawn(1, 1, each, 10 * at, 5) for at, each in enumerate([*calls, name])])
    assert (names(trace, Kind.RUNTIME), names(trace, Kind.CPU_OP)) == (calls, [name])


KINDS = {"/device:GPU:0": "cuda", "GPU1": "cuda", "/device:TPU:3": "unknown", "/device:XPU:0": "xpu"}
KINDS |= {"Ascend Hardware": "npu", "NPU 2": "npu"}


@pytest.mark.parametrize(("process", "kind"), KINDS.items())
def test_a_device_is_what_its_process_says(tmp_path: Path, process: str, kind: str) -> None:
    trace = jax(tmp_path, process, "Stream #13(Compute)", "Stream #14(MemcpyH2D)", "Stream #20(MemcpyD2H)")
    assert [row["stream"] for row in trace.tracks.rows() if row["device"] is not None] == [13, 14, 20]
    assert trace.device.kind == kind


def test_torch_npu_writes_a_list_whose_device_events_have_no_category(tmp_path: Path) -> None:
    """A list as torch_npu of 2024 writes it: operator, call, device and collective on processes, tied by arrows."""
    at, call = "1704161511{:06d}.500".format, "hcom_allReduce__868_3_1"
    ascend = {1: "Python", 800: "Ascend Hardware", 43: "CANN", 44: "Overlap Analysis", 45: "HCCL"}
    events = [
        drawn(1, 1, "aten::add", at(10), 9.0, cat="cpu_op"),
        drawn(43, 2, "AscendCL@aclnnAdd", at(20), 9.0),
        drawn(43, 2, "AscendCL@Add_Tiling", at(21), 1.0),
        drawn(800, 3, "aclnnAdd_AddAiCore_Add", at(40), 2.5),
        drawn(44, 0, "Free", at(43), 99.0),
        drawn(800, 3, "EVENT_WAIT", at(50), 90.0),
        *(drawn(800, 5, task, at(start), 30.0) for task, start in (("Notify Wait", 50), ("SDMA", 80))),
        drawn(45, 0, call, at(50), 70.0, args={"data_type": "FP32", "count": 5, "alg_type": "MESH-RING"}),
        drawn(45, 1, "Notify_Wait", at(50), 30.0, args={"src rank": 1, "dst rank": 0}),
        *(metadata(45, line, "thread_name", tid=at) for at, line in enumerate(("Group 0 Communication", "Plane 0"))),
        *(metadata(pid, name, tid=0) for pid, name in ascend.items()),
    ]
    for category, pid, tid, start in (("HostToDevice", 43, 2, 25), ("async_npu", 1, 1, 15)):
        arrow = {"name": category, "cat": category, "id": "7"}
        events.append({"ph": "s", "pid": pid, "tid": tid, "ts": at(start), **arrow})
        events.append({"ph": "f", "pid": 800, "tid": 3, "ts": at(40), **arrow})
    for rank in (3, 4):
        folder = tmp_path / f"host_{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        folder.mkdir(parents=True)
        (folder.parent / f"profiler_info_{rank}.json").touch()
        trace = json_trace(folder / "trace_view.json", events)
    assert [len(sources) for _, sources in discover([tmp_path]).runs] == [2]  # folders of ranks, of one job
    assert trace.identity.rank == 4 and trace.has_base_time
    work = ["aclnnAdd_AddAiCore_Add", call]  # and no wait of a stream or task of a collective
    assert (trace.device.kind, names(trace, Kind.KERNEL)) == ("npu", work)
    assert names(trace, Kind.RUNTIME) == ["aclnnAdd", "Add_Tiling"]
    (called,) = trace.collectives.rows()
    assert (called["seq"], called["in_bytes"], called["group_size"], trace.process_groups[0].name) == (3, 20, 2, "868")
    linked = {trace.strings[row["name"]] for row in trace.events.rows() if row["correlation"] is not None}
    assert linked == {"aclnnAdd", "aclnnAdd_AddAiCore_Add"}  # not the part of the call that ended before


WORK = {("/host:CPU", ""): "cpu", ("python", "cpu_op"): "cpu"}  # process and category -> kind of device
WORK |= {("DataIterator", category): "unknown" for category in ("", "x")}


@pytest.mark.parametrize(("told", "kind"), WORK.items())
def test_spans_that_nobody_calls_operators_are_of_no_known_device(tmp_path: Path, told: Any, kind: str) -> None:
    work = [drawn(1, 1, "dataset::GetNext", 100.0 * at, 5, cat=told[1]) for at in range(4)]
    assert json_trace(tmp_path / "t.json", [metadata(1, told[0]), *work]).device.kind == kind


def test_a_pytorch_of_old_writes_ranges_and_how_long_its_device_took(tmp_path: Path) -> None:
    events = [drawn("CPU functions", 1, name, at, 40) for at, name in ((0, "aten::mm"), (90, "step"))]
    trace = json_trace(tmp_path / "t.json", events)
    assert (trace.device.kind, names(trace, Kind.ANNOTATION)) == ("cpu", ["step"])
    events += [drawn("CUDA functions", 0, "aten::mm", 5, 30), {**events[0], "ph": "s", "cat": "cpu_to_cuda", "id": 0}]
    trace = json_trace(tmp_path / "t.json", events)
    assert (trace.device.kind, names(trace, Kind.KERNEL)) == ("cuda", [])
    assert "operators timed on the device" in trace.health[0].issue
    assert json_trace(tmp_path / "t.json", [{**events[0], "name": "aten::cudnn_convolution"}]).device.kind == "cuda"


JOB = "/job:localhost/replica:0/task:0"


def timeline(folder: Path, *processes: str) -> RankTrace:
    """A timeline of a TensorFlow 1 session: one operator in each of these processes."""
    events = [metadata(pid, f"{process} Compute") for pid, process in enumerate(processes)]
    events += [drawn(pid, 0, f"Conv2D-{pid}", 100, 300) for pid in range(len(processes))]
    return json_trace(folder / "timeline.json", {"traceEvents": events})


def test_operators_of_a_tensorflow_timeline_are_the_hosts_and_its_sums_over_streams_no_work(tmp_path: Path) -> None:
    gpu = "/device:GPU:0"
    streams = [f"{gpu}/stream:{which}" for which in ("13", "18", "all")]
    trace = timeline(tmp_path, f"{JOB}{gpu}", *streams, f"{gpu}/memcpy")
    assert (names(trace, Kind.KERNEL), names(trace, Kind.CPU_OP)) == (["Conv2D-1", "Conv2D-2"], ["Conv2D-0"])
    assert sorted(trace.tracks["stream"][trace.tracks["device"] == 0].tolist()) == [13, 18]
    cpus = (timeline(tmp_path, f"{JOB}{cpu}") for cpu in ("/device:CPU:0", "/cpu:0"))
    assert [trace.device.kind for trace in cpus] == ["cpu", "cpu"]

"""Events to columns: categories, arguments, process groups, and impossible times, which are left out and counted."""

import json
import warnings
from pathlib import Path
from typing import Any

import kineto_text as kt
import numpy as np
import pytest
from reading import issues, times, trace_of

from ddprof.model import Kind, element_bytes
from ddprof.readers import Source, read
from ddprof.readers.columns.groups import number_in_communicator
from ddprof.readers.numbers import FARTHEST_NS, LARGEST_RANK, MAX_NS, lengths_ns, near_each_other
from ddprof.tables import NULL

pytestmark = pytest.mark.usefixtures("decoding")


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        *((name, Kind.CPU_OP) for name in ("cpu_op", "Operator")),
        *((name, Kind.KERNEL) for name in ("kernel", "Kernel", "mtia_ccp_events")),
        *((name, Kind.MEMCPY) for name in ("gpu_memcpy", "Memcpy")),
        *((name, Kind.MEMSET) for name in ("gpu_memset", "Memset")),
        *((name, Kind.RUNTIME) for name in ("cuda_runtime", "Runtime", "cuda_driver", "xpu_runtime")),
        *(("privateuse1_runtime", Kind.RUNTIME), ("cuda_sync", Kind.SYNC), ("overhead", Kind.OVERHEAD)),
        *(("user_annotation", Kind.ANNOTATION), ("gpu_user_annotation", Kind.GPU_ANNOTATION)),
    ],
)
def test_categories_of_every_vendor(tmp_path: Path, category: str, kind: Kind) -> None:
    trace = trace_of(tmp_path / "t.json", [kt.span("x", 1000, 10, category)])
    assert trace.events["kind"].tolist() == [kind] and trace.top["categories"] == {category: 1}


def test_unknown_categories_are_work_or_named_and_of_frames_collections_alone_are_events(tmp_path: Path) -> None:
    on_device = {"cat": "new_accelerator", "pid": 0, "tid": 7, "device": 0, "stream": 7}
    numbered = enumerate(("gemm", "MemcpyAsync"), 1)
    work = [kt.span(name, 20 * at, 10, **on_device, correlation=at) for at, name in numbered]
    trace = trace_of(tmp_path / "t.json", [*work, kt.span("what", 60, 10, "mystery")])
    assert trace.events["kind"].tolist() == [Kind.KERNEL, Kind.MEMCPY]
    assert any("1 of 'mystery'" in h.issue for h in trace.health)
    frames = (("model.py(3): forward", 0, 99_999), ("model.py(3): forward", 200_000, 100_000), ("Python GC", 10, 50))
    events = [*(kt.span(*frame, "python_function") for frame in frames), kt.span("aten::mm", 20, 5)]
    trace = trace_of(tmp_path / "t.json", events)
    assert [row[0] for row in times(trace)] == ["Python GC", "aten::mm"] and len(trace.script_spans) == 1
    assert trace.top["categories"]["python_function"] == 3


def test_collective_arguments(tmp_path: Path) -> None:
    arguments = {"Collective name": "_allgather_base", "In msg nelems": 1000, "Out msg nelems": 4000, "Group size": 4}
    arguments |= {"dtype": "BFloat16", "Process Group Name": "1", "Process Group Description": "mesh_tp", "Seq": 17}
    arguments |= {"External id": 5}
    call = kt.span("record_param_comms", 0, 10, **{"Process Group Ranks": "[0, 1, 2, 3]", **arguments})
    events = [call, kt.kernel("ncclDevKernel_AllGather_RING_LL", 30, 10, correlation=9, **arguments)]
    told = {"pg_name": "1", "pg_desc": "undefined", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": [0, 1, 2, 3]}
    header = {"distributedInfo": {"rank": 2, "world_size": 8, "backend": "nccl", "pg_config": [told]}}
    trace = trace_of(tmp_path / "t.json", events, header=header)
    rows = list(trace.collectives.rows())
    assert [r["row"] for r in rows] == [0, 1]
    for row in rows:
        assert (trace.strings[row["op"]], trace.strings[row["dtype"]]) == ("_allgather_base", "BFloat16")
        assert (row["seq"], row["in_bytes"], row["out_bytes"], row["group_size"]) == (17, 2000, 8000, 4)
        assert trace.process_groups[row["group"]].ranks == (0, 1, 2, 3)
    (group,) = trace.process_groups
    assert (group.name, group.description, group.size, group.backend) == ("1", "mesh_tp", 4, "cuda:nccl")
    assert (trace.identity.rank, trace.identity.source, trace.identity.world_size) == (2, "distributedInfo", 8)


def test_messages_sends_and_receipts_know_their_peer_and_tag(tmp_path: Path) -> None:
    both = {"In msg nelems": 10, "dtype": "Float", "Process Group Name": "3"}
    ways = ({"Collective name": "send", "Dst Rank": 1}, {"Collective name": "recv", "Src Rank": 1})
    events = [kt.span("record_param_comms", 5 * at, 1, **both, **way) for at, way in enumerate(ways)]
    trace = trace_of(tmp_path / "t.json", events)
    assert [(r["src"], r["dst"], r["in_bytes"]) for r in trace.collectives.rows()] == [(None, 1, 40), (1, None, 40)]
    # Annotations of gloo become collectives with the size of their tensors.
    shapes = {"Input Dims": [[1000], [5, 2]], "Input type": ["float", "double"]}
    trace = trace_of(tmp_path / "t.json", [kt.span("gloo:all_reduce", 0, 10, "user_annotation", **shapes)])
    (row,) = trace.collectives.rows()
    assert (trace.strings[row["op"]], row["in_bytes"], row["seq"]) == ("all_reduce", 4080, None)
    shapes = {"Input Dims": [[[2, 3]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}
    damaged = ({"Concrete Inputs": value} for value in (None, "x", {}, ["", "", "-1", "many"]))
    events = [
        kt.span("c10d::send", 0, 1, **shapes, **{"Concrete Inputs": ["", "", "3", "7"]}),
        kt.span("c10d::recv_", 10, 1, **shapes, **{"Concrete Inputs": ["", "", "1", "0"]}),
        kt.span("c10d::recv_any_source_", 20, 1, **{"Concrete Inputs": ["", "", "5"]}),
        kt.span("c10d::allreduce_", 30, 1, **{"Concrete Inputs": ["", "", "1", "0"]}),
        *(kt.span("c10d::send", 40 + at, 1, **given) for at, given in enumerate((*damaged, {}))),
    ]
    calls = trace_of(tmp_path / "t.json", events[::-1]).message_calls.rows()
    unknown = [(row, None, None) for row in range(4, 9)]
    assert [tuple(call.values()) for call in calls] == [(0, 3, 7), (1, 1, 0), (2, None, 5), *unknown]


def test_copies_shapes_and_memory(tmp_path: Path) -> None:
    sample = {"Total Allocated": 100, "Total Reserved": 200, "Device Id": 0, "Device Type": 1, "Bytes": 4}
    events = [
        kt.span("aten::mm", 0, 10, **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}),
        kt.span("aten::view", 12, 1, **{"Input Dims": [[2, 3]]}),
        kt.span("Memcpy HtoD (Pinned -> Device)", 20, 10, "gpu_memcpy", 0, 7, device=0, stream=7, bytes="128"),
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": sample},
    ]
    trace = trace_of(tmp_path / "t.json", events)
    (operator,) = trace.operators.rows()
    assert json.loads(trace.strings[operator["dims"]]) == [[2, 3], [3, 4]]
    assert list(trace.copies.rows()) == [{"row": 2, "size_bytes": 128}]
    assert list(trace.memory.rows()) == [{"ts_ns": 5000, "device": 0, "allocated_bytes": 100, "reserved_bytes": 200}]


def test_a_sparse_gradient_is_not_as_large_as_its_shape(tmp_path: Path) -> None:
    args = {"Input Dims": [[10_000_000, 64]], "Input type": ["float"]}
    names = ("gloo:sparse_all_reduce", "gloo:all_reduce")
    spans = [kt.span(name, at * 20, 10, "user_annotation", **args) for at, name in enumerate(names)]
    assert [row["in_bytes"] for row in trace_of(tmp_path / "t.json", spans).collectives.rows()] == [None, 2_560_000_000]


def test_elements_of_every_type_that_torch_names_have_a_size() -> None:
    names = {"long unsigned int": 8, "unsigned int": 4, "short unsigned int": 2, "UInt64": 8, "UInt16": 2}
    names |= {"c10::complex<c10::Half>": 4, "c10::complex<float>": 8, "c10::Float4_e2m1fn_x2": 1, "long int": 8}
    assert {name: element_bytes(name) for name in names} == names


@pytest.mark.parametrize(
    ("start", "stride", "size", "ranks"),
    [(0, 1, 64, tuple(range(64))), (3, 8, 4, (3, 11, 19, 27)), (5, -1, 64, ()), (7, 0, 1, (7,))],
)
def test_abbreviated_groups(tmp_path: Path, start: int, stride: int, size: int, ranks: tuple[int, ...]) -> None:
    arguments = {"Collective name": "allreduce", "Group size": size, "Process Group Name": "g"}
    arguments |= {"Process Group Ranks": "[0, 1, 2, ..., 63]", "Global rank start": start, "Global rank stride": stride}
    trace = trace_of(tmp_path / "t.json", [kt.span("record_param_comms", 0, 10, **arguments)])
    assert [(group.ranks, group.size) for group in trace.process_groups] == [(ranks, size)]


FIELDS = ("Process Group Name", "Process Group Description", "Process Group Ranks", "Group size", "Global rank start")
FIELDS += ("Global rank stride", "Rank", "Seq", "In msg nelems", "dtype")


@pytest.mark.parametrize("odd", [["a"], {"a": 1}, True, 10**30, -1, "9" * 6000, [10**30], float("nan"), None])
@pytest.mark.parametrize("field", FIELDS)
def test_arguments_of_any_type_leave_a_group_whose_ranks_can_be(tmp_path: Path, field: str, odd: Any) -> None:
    sound: dict[str, Any] = {"Collective name": "allreduce", "Group size": 2}
    sound |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    header = {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": odd, "pg_size": odd, "ranks": [odd]}]}}
    trace = trace_of(tmp_path / "t.json", [kt.kernel("nccl", 0, 10, **{**sound, field: odd})], header=header)
    assert len(trace.collectives) == 1
    assert all(rank <= LARGEST_RANK for group in trace.process_groups for rank in group.ranks)
    assert all(isinstance(group.name, str) and (group.size or 1) <= LARGEST_RANK for group in trace.process_groups)


@pytest.mark.parametrize("name", [["a"], {}, True])
def test_a_group_whose_name_is_no_text_is_said(tmp_path: Path, name: Any) -> None:
    event = kt.kernel("nccl", 0, 10, **{"Collective name": "allreduce", "Process Group Name": name})
    assert "1 collectives whose group has no usable name" in issues(trace_of(tmp_path / "t.json", [event]))


def test_functions_do_not_share_numbers_and_keep_their_order() -> None:
    functions = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll")
    numbers = {(function, n): number_in_communicator(function, n) for function in functions for n in range(20)}
    assert len(set(numbers.values())) == len(numbers)
    of_each = [[numbers[function, n] for n in range(20)] for function in functions]
    assert of_each == [sorted(its) for its in of_each]
    assert number_in_communicator("AllReduce", NULL) == NULL == number_in_communicator("AllReduce", 2**62)


GOOD = [kt.kernel(f"k{n}", 1000 * n, 500, correlation=n, **{"Collective name": "allreduce"}) for n in range(1, 9)]


ODD_TIMES = (
    "9223372036854775807",
    "-9223372036854775808",
    "4611686018427387",
    "-4611686018427387",
    "4611686018427386.999",
)
ODD_TIMES += (
    "1e400",
    "-1e18",
    "1e999999999",
    "1e-999999999",
    '"1e18"',
    "9" * 30,
    "null",
    "true",
    "[]",
    "{}",
    '"x"',
    "-1",
)


@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("odd", ODD_TIMES)
def test_no_time_of_an_event_changes_those_of_others(tmp_path: Path, field: str, odd: str) -> None:
    path, header = tmp_path / "t.json", {"baseTimeNanoseconds": 10**18}
    path.write_bytes(kt.render([*GOOD, {**GOOD[0], field: "ODD"}], header=header).replace(b'"ODD"', odd.encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sound, damaged = trace_of(tmp_path / "sound.json", GOOD, header=header), read(Source(str(path), "kineto"))
    times_ns = damaged.events["ts_ns"].tolist()
    assert set(sound.events["ts_ns"].tolist()) <= set(times_ns) and max(times_ns) - min(times_ns) < FARTHEST_NS
    assert len(damaged.collectives) == len(damaged.events)
    assert ((damaged.events["dur_ns"] >= 0) & (damaged.events["dur_ns"] <= 86_400 * 10**9)).all()
    assert len(damaged.events) == 9 or "left out" in issues(damaged)


@pytest.mark.parametrize("base", [2**62, 2**63, 10**30, -1, "x", [], 0.5, True])
def test_a_clock_base_that_is_no_time_is_left_out_and_said(tmp_path: Path, base: Any) -> None:
    trace = trace_of(tmp_path / "t.json", GOOD, header={"baseTimeNanoseconds": base})
    assert len(trace.events) == 8 and not trace.has_base_time
    assert "the header has impossible values for baseTimeNanoseconds" in issues(trace)


def test_lengths_are_null_where_an_end_is_missing_and_never_overflow() -> None:
    start = np.array([0, 5, NULL, 3, -MAX_NS, -MAX_NS + 1, 2**63 - 1])
    end = np.array([4, 2, 9, NULL, 4, MAX_NS - 1, NULL])
    assert lengths_ns(start, end).tolist() == [4, -3, NULL, NULL, NULL, 2**63 - 2, NULL]
    # Times far from the middle one are of no recording.
    times = np.array([0, 10, FARTHEST_NS // 2, 2**61, -(2**61), NULL, 2**63 - 1])
    assert near_each_other(times).tolist() == [True, True, True, False, False, False, False]
    assert near_each_other(np.empty(0, np.int64)).tolist() == []


@pytest.mark.parametrize(
    ("external", "around", "named"),
    [
        *(((7, 8), False, [NULL, NULL]), ((41, 8), False, [41, 8])),
        ((7, 8), True, [7, 8]),  # the operators of these numbers do hold the launches: written by another tool
    ],
)
def test_an_id_that_repeats_the_correlation_names_no_operator(tmp_path: Path, external, around: bool, named) -> None:
    events = []
    for at, number in enumerate(external):
        ids = {"correlation": 7 + at, "External id": number}
        launch = kt.span("cudaLaunchKernel", 1000 * at, 9, "cuda_runtime", **ids)
        events += [launch, kt.kernel("k", 1000 * at + 50, 500, **ids)]
    begun = [1000 * at - 5 if around else 5000 + 100 * at for at in (0, 1)]
    operators = [kt.span("aten::mm", begun[n - 7], 20, **{"External id": n}) for n in (7, 8)]
    trace = trace_of(tmp_path / "t.json", [*events, *operators])
    ids = trace.events["external_id"]
    assert ids[trace.events["kind"] == Kind.KERNEL].tolist() == named
    assert ids[trace.events["kind"] == Kind.CPU_OP].tolist() == [7, 8]

"""Kineto events to columns: every layout, every vendor's categories, exact times, arguments where they belong."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import kineto_text as kt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddprof.model import Kind, RankTrace
from ddprof.readers import Source, read
from ddprof.readers.files import streams
from ddprof.readers.formats.kineto.trace import read_kineto
from ddprof.tables import NULL

pytestmark = pytest.mark.usefixtures("decoding")

NAMES = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="@"), max_size=12)
EVENT = st.builds(
    kt.span,
    name=NAMES,
    ts_ns=st.integers(0, 10**13),
    dur_ns=st.integers(0, 10**9),
    cat=st.sampled_from(["cpu_op", "user_annotation", "cuda_runtime", "kernel"]),
    pid=st.integers(0, 3) | st.sampled_from(["a", "b"]),
    tid=st.integers(0, 3) | st.sampled_from(["stream 7"]),
    correlation=st.integers(0, 2**40),
)


def trace_of(path: Path, events: list[Any], layout: str = "compact", header: dict[str, Any] | None = None) -> RankTrace:
    return read(Source(str(kt.write(path, events, layout, header)), "kineto"))


def times(trace: RankTrace) -> list[tuple[str, int, int, int]]:
    columns = (trace.events[c].tolist() for c in ("name", "ts_ns", "dur_ns", "correlation"))
    return [(trace.strings[n], ts, dur, c) for n, ts, dur, c in zip(*columns, strict=True)]


def ns(text: str) -> int:
    return round(float(text.strip("@")) * 1000)


@settings(deadline=None, max_examples=60)
@given(st.lists(EVENT, min_size=2, max_size=20), st.sampled_from(kt.LAYOUTS), st.integers(40, 4000), st.booleans())
def test_round_trip_of_random_events_in_random_layouts(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any], layout: str, block: int, pack: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "trace.json"
    content = kt.render(events, layout)
    path.write_bytes(gzip.compress(content) if pack else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK_BYTES", block)
        patch.setattr(streams, "_RAW_BYTES", block)
        trace = read(Source(str(path), "kineto"))
    wanted = [(e["name"], ns(e["ts"]), ns(e["dur"]), e["args"]["correlation"]) for e in events]
    assert times(trace) == sorted(wanted, key=lambda e: (e[1], -e[2])) or sorted(times(trace)) == sorted(wanted)
    assert (np.diff(trace.events["ts_ns"]) >= 0).all()
    written = {(str(e["pid"]), str(e["tid"])) for e in events}
    assert set(zip(trace.tracks["pid"].tolist(), trace.tracks["tid"].tolist(), strict=True)) == written
    assert not [h for h in trace.health if h.severity != "info"]


def test_epoch_fractions_are_exact(tmp_path: Path) -> None:
    base = 1_694_128_201_435_418_001
    events = [kt.span(f"e{i}", base + i * 1_000_003, 1_001 + i) for i in range(500)]
    trace = trace_of(tmp_path / "t.json", events)
    assert trace.events["ts_ns"].tolist() == [base + i * 1_000_003 for i in range(500)]
    assert trace.events["dur_ns"].tolist() == [1_001 + i for i in range(500)]
    assert trace.has_base_time


def test_base_time_is_added_wherever_it_stands(tmp_path: Path) -> None:
    header = {"baseTimeNanoseconds": 1_760_000_000_000_000_000}
    for layout in ("compact", "header_last", "indented"):
        trace = trace_of(tmp_path / "t.json", [kt.span("a", 4458676000982367, 17619)], layout, header)
        assert trace.events["ts_ns"].tolist() == [1_760_000_000_000_000_000 + 4458676000982367]
        assert trace.has_base_time
    assert not trace_of(tmp_path / "t.json", [kt.span("a", 5000, 10)]).has_base_time


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cpu_op", Kind.CPU_OP),
        ("Operator", Kind.CPU_OP),
        ("user_annotation", Kind.ANNOTATION),
        ("gpu_user_annotation", Kind.GPU_ANNOTATION),
        ("kernel", Kind.KERNEL),
        ("Kernel", Kind.KERNEL),
        ("gpu_memcpy", Kind.MEMCPY),
        ("Memcpy", Kind.MEMCPY),
        ("gpu_memset", Kind.MEMSET),
        ("Memset", Kind.MEMSET),
        ("cuda_runtime", Kind.RUNTIME),
        ("Runtime", Kind.RUNTIME),
        ("cuda_driver", Kind.RUNTIME),
        ("xpu_runtime", Kind.RUNTIME),
        ("privateuse1_runtime", Kind.RUNTIME),
        ("mtia_ccp_events", Kind.KERNEL),
        ("cuda_sync", Kind.SYNC),
        ("overhead", Kind.OVERHEAD),
    ],
)
def test_categories_of_every_vendor(tmp_path: Path, category: str, kind: Kind) -> None:
    trace = trace_of(tmp_path / "t.json", [kt.span("x", 1000, 10, category)])
    assert trace.events["kind"].tolist() == [kind]
    assert trace.top["categories"] == {category: 1}


def test_unknown_categories_are_device_work_where_they_say_so_and_named_where_not(tmp_path: Path) -> None:
    events = [
        kt.span("gemm", 0, 10, "new_accelerator", 0, 7, device=0, stream=7, correlation=1),
        kt.span("MemcpyAsync", 20, 10, "new_accelerator", 0, 7, device=0, stream=7, correlation=2),
        kt.span("what", 40, 10, "mystery"),
    ]
    trace = trace_of(tmp_path / "t.json", events)
    assert trace.events["kind"].tolist() == [Kind.KERNEL, Kind.MEMCPY]
    assert any("1 of 'mystery'" in h.issue for h in trace.health)


def test_python_frames_are_dropped_but_never_garbage_collection(tmp_path: Path) -> None:
    events = [
        kt.span("model.py(3): forward", 0, 100, "python_function"),
        kt.span("Python GC", 10, 50, "python_function"),
        kt.span("aten::mm", 20, 5),
    ]
    path = kt.write(tmp_path / "t.json", events)
    short, full = read_kineto(Source(str(path), "kineto")), read_kineto(Source(str(path), "kineto"), keep_python=True)
    assert [trace[0] for trace in times(short)] == ["Python GC", "aten::mm"]
    assert len(full.events) == 3
    assert short.top["categories"]["python_function"] == 2


def test_collective_arguments(tmp_path: Path) -> None:
    arguments = {
        "Collective name": "_allgather_base",
        "In msg nelems": 1000,
        "Out msg nelems": 4000,
        "Group size": 4,
        "dtype": "BFloat16",
        "Process Group Name": "1",
        "Process Group Description": "mesh_tp",
        "Seq": 17,
    }
    events = [
        kt.span("record_param_comms", 0, 10, **{"External id": 5, "Process Group Ranks": "[0, 1, 2, 3]", **arguments}),
        kt.kernel("ncclDevKernel_AllGather_RING_LL", 30, 10, **{"External id": 5, "correlation": 9, **arguments}),
    ]
    config = [
        {"pg_name": "1", "pg_desc": "undefined", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": [0, 1, 2, 3]}
    ]
    header = {"distributedInfo": {"rank": 2, "world_size": 8, "backend": "nccl", "pg_config": config}}
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


@pytest.mark.parametrize(
    ("start", "stride", "size", "ranks"),
    [(0, 1, 64, tuple(range(64))), (3, 8, 4, (3, 11, 19, 27)), (5, -1, 64, ()), (7, 0, 1, (7,))],
)
def test_abbreviated_groups_come_from_start_and_stride(
    tmp_path: Path, start: int, stride: int, size: int, ranks: tuple[int, ...]
) -> None:
    arguments = {
        "Collective name": "allreduce",
        "Group size": size,
        "Process Group Name": "g",
        "Process Group Ranks": "[0, 1, 2, ..., 63]",
        "Global rank start": start,
        "Global rank stride": stride,
    }
    trace = trace_of(tmp_path / "t.json", [kt.span("record_param_comms", 0, 10, **arguments)])
    assert [g.ranks for g in trace.process_groups] == [ranks]
    assert trace.process_groups[0].size == size


def test_messages_state_their_peers(tmp_path: Path) -> None:
    send = {"Collective name": "send", "In msg nelems": 10, "dtype": "Float", "Process Group Name": "3", "Dst Rank": 1}
    recv = {"Collective name": "recv", "In msg nelems": 10, "dtype": "Float", "Process Group Name": "3", "Src Rank": 1}
    events = [kt.span("record_param_comms", 0, 1, **send), kt.span("record_param_comms", 5, 1, **recv)]
    trace = trace_of(tmp_path / "t.json", events)
    assert [(r["src"], r["dst"], r["in_bytes"]) for r in trace.collectives.rows()] == [(None, 1, 40), (1, None, 40)]


def test_gloo_annotations_become_collectives_with_the_size_of_their_tensors(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[1000], [5, 2]], "Input type": ["float", "double"]}
    trace = trace_of(tmp_path / "t.json", [kt.span("gloo:all_reduce", 0, 10, "user_annotation", **shapes)])
    (row,) = trace.collectives.rows()
    assert (trace.strings[row["op"]], row["in_bytes"], row["seq"]) == ("all_reduce", 4080, None)


def test_copies_shapes_syncs_and_memory(tmp_path: Path) -> None:
    wait = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 1385}
    sample = {"Total Allocated": 100, "Total Reserved": 200, "Device Id": 0, "Device Type": 1, "Bytes": 4}
    events = [
        kt.span("aten::mm", 0, 10, **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}),
        kt.span("aten::view", 12, 1, **{"Input Dims": [[2, 3]]}),
        kt.span("Memcpy HtoD (Pinned -> Device)", 20, 10, "gpu_memcpy", 0, 7, device=0, stream=7, bytes="128"),
        kt.span("Stream Wait Event", 30, 2, "cuda_sync", 0, 24, device=0, stream=24, **wait),
        kt.span("Event Sync", 40, 2, "cuda_sync", 0, -1, device=0, stream=-1, wait_on_stream=-1),
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": sample},
    ]
    trace = trace_of(tmp_path / "t.json", events)
    (operator,) = trace.operators.rows()
    assert json.loads(trace.strings[operator["dims"]]) == [[2, 3], [3, 4]]
    assert list(trace.copies.rows()) == [{"row": 2, "size_bytes": 128}]
    assert [(r["wait_stream"], r["wait_correlation"]) for r in trace.syncs.rows()] == [(20, 1385), (None, None)]
    assert list(trace.memory.rows()) == [{"ts_ns": 5000, "device": 0, "allocated_bytes": 100, "reserved_bytes": 200}]


def test_sends_and_receipts_know_their_peer_and_tag(tmp_path: Path) -> None:
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


def test_tracks_know_their_device_and_stream(tmp_path: Path) -> None:
    events = [
        kt.kernel("gemm", 0, 10, device=3, stream=20),
        kt.span("old", 20, 10, "Kernel", 1, "stream 7"),
        kt.span("aten::mm", 40, 10, pid=99, tid="99"),
        {"ph": "M", "name": "thread_name", "pid": 99, "tid": 99, "args": {"name": "thread 99 (python)"}},
    ]
    trace = trace_of(tmp_path / "t.json", events)
    assert list(trace.tracks.rows()) == [
        {"pid": "3", "tid": "20", "name": "", "device": 3, "stream": 20},
        {"pid": "1", "tid": "stream 7", "name": "", "device": 1, "stream": 7},
        {"pid": "99", "tid": "99", "name": "thread 99 (python)", "device": None, "stream": None},
    ]


def test_old_external_ids(tmp_path: Path) -> None:
    events = [kt.span("Kernel", 0, 1, "Kernel", **{"external id": 7}), kt.span("op", 5, 1, **{"External id": 8})]
    assert trace_of(tmp_path / "t.json", events).events["external_id"].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("event", "issue"),
    [
        ({"dur": -5}, "1 negative durations"),
        ({"dur": None}, "1 events without a usable duration"),
        ({"dur": 10**14}, r"1 durations beyond a day \(overflow\)"),
        ({"ts": None}, "1 events without a usable timestamp"),
        ({"ph": "B"}, "1 begin/end events"),
    ],
)
def test_defects_are_counted_and_said(tmp_path: Path, event: dict[str, Any], issue: str) -> None:
    bad = {"ph": "X", "cat": "cpu_op", "name": "bad", "pid": 1, "tid": 1, "ts": 100, "dur": 5, **event}
    trace = trace_of(tmp_path / "t.json", [kt.span("good", 0, 10), bad, None])
    assert (trace.events["dur_ns"] >= 0).all() and (trace.events["dur_ns"] < 10**9).all()
    assert [h for h in trace.health if re.search(issue, h.issue)]
    assert any("1 null events" in h.issue for h in trace.health)


def test_launches_without_device_events_are_an_error_note(tmp_path: Path) -> None:
    trace = trace_of(tmp_path / "t.json", [kt.span("cudaLaunchKernel", 0, 10, "cuda_runtime", correlation=1)])
    assert [h.severity for h in trace.health if "no device events" in h.issue] == ["error"]


def test_missing_ids_are_null_and_parents_come_before_children(tmp_path: Path) -> None:
    trace = trace_of(tmp_path / "t.json", [kt.span("child", 100, 5), kt.span("parent", 100, 50)])
    assert [t[0] for t in times(trace)] == ["parent", "child"]
    assert trace.events["correlation"].tolist() == [NULL, NULL]

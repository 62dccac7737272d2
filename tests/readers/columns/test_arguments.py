"""Arguments of collectives, messages, copies and synchronisations, where they belong."""

import json
from pathlib import Path

import kineto_text as kt
import pytest
from reading import trace_of

from ddprof.model import element_bytes

pytestmark = pytest.mark.usefixtures("decoding")


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


def test_a_sparse_gradient_is_not_as_large_as_its_shape(tmp_path: Path) -> None:
    args = {"Input Dims": [[10_000_000, 64]], "Input type": ["float"]}
    names = ("gloo:sparse_all_reduce", "gloo:all_reduce")
    spans = [kt.span(name, at * 20, 10, "user_annotation", **args) for at, name in enumerate(names)]
    trace = trace_of(tmp_path / "t.json", spans)
    assert [row["in_bytes"] for row in trace.collectives.rows()] == [None, 2_560_000_000]


def test_elements_of_every_type_that_torch_names_have_a_size() -> None:
    names = {"long unsigned int": 8, "unsigned int": 4, "short unsigned int": 2, "UInt64": 8, "UInt16": 2}
    names |= {"c10::complex<c10::Half>": 4, "c10::complex<float>": 8, "c10::Float4_e2m1fn_x2": 1, "long int": 8}
    assert {name: element_bytes(name) for name in names} == names

"""Logs of NCCL Inspector, with the fields that its source writes (v4.0 to v4.3); made here, not recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from reading import issues, names, one_trace, traces

from ddprof.api import analyze
from ddprof.errors import NoUsableInput
from ddprof.model import Kind
from ddprof.readers import discover

START_US = 1_752_867_229_235_181


def line(rank: int, number: int, late_us: int = 0, version: str = "v4.1", verbose: bool = True) -> dict[str, Any]:
    start, stop = (START_US + number * 10_000 + later for later in (late_us, 5_000))
    times = {"kernel_start_ts": start, "kernel_stop_ts": stop, "kernel_record_ts": stop}
    perf: dict[str, Any] = {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 20}
    perf |= {"coll_exec_time_us": stop - start, "coll_timing_source": "kernel_gpu"}
    perf |= {"coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.5}
    if verbose:
        perf["event_trace_ts"] = {"coll_start_ts": start, "coll_stop_ts": start}
    if verbose and version == "v4.0":
        kernels = [{"channel_id": 0, **times}, {"channel_id": 1, **times, "kernel_start_ts": start + 3}]
        perf["event_trace_ts"]["kernel_events"] = kernels
    elif verbose:
        proxy = {"event_type": "ProxyOp", "proxy_start_ts": start, "proxy_stop_ts": stop}
        perf["events"] = [{"event_type": "KernelCh", "channel_id": 0, "event_trace_ts": times}, proxy]
    header = {"id": "0x7f8c496ae9f661", "comm_name": "unknown", "rank": rank, "n_ranks": 2, "nnodes": 1}
    metadata = {"inspector_output_format_version": version, "git_rev": "", "rec_mechanism": "nccl_profiler_interface"}
    metadata |= {"dump_timestamp_us": stop + 500, "hostname": "node0", "pid": 100 + rank}
    return {"header": header, "metadata": metadata, "coll_perf": perf}


def write(folder: Path, lines: dict[int, list[dict[str, Any]]]) -> Path:
    for rank, its in lines.items():
        (folder / f"node0-pid{100 + rank}.log").write_text("".join(json.dumps(one) + "\n" for one in its))
    return folder


@pytest.mark.parametrize("version", ["v4.0", "v4.1"])
def test_collectives_with_size_number_and_time(tmp_path: Path, version: str) -> None:
    late = {rank: [line(rank, n, 2_000 * rank, version) for n in range(4)] for rank in (0, 1)}
    first, second = traces(write(tmp_path, late))
    assert (first.identity.rank, second.identity.rank) == (0, 1)
    assert (first.identity.world_size, first.identity.host, first.identity.pid) == (2, "node0", 100)
    assert names(first, Kind.KERNEL) == ["ncclDevKernel_AllReduce"] * 4
    assert [(r["in_bytes"], r["group_size"]) for r in first.collectives.rows()] == [(1 << 20, 2)] * 4
    numbers = first.collectives["seq"].tolist()
    assert numbers == second.collectives["seq"].tolist() and len(set(numbers)) == 4
    for trace, length_ns in ((first, 5_000_000), (second, 3_000_000)):
        assert trace.events["dur_ns"][trace.events["kind"] == Kind.KERNEL].tolist() == [length_ns] * 4


def test_who_comes_late_is_said_and_computation_is_not(tmp_path: Path) -> None:
    late = {0: [line(0, n) for n in range(12)], 1: [line(1, n, 2_000) for n in range(12)]}
    run = analyze(write(tmp_path, late), cache=False)
    assert set(run.collectives["last_rank"]) == {1}
    assert run.collectives["longest_wait_us"].tolist() == pytest.approx([2_000] * 12)
    assert run.report.ledger.job["compute"] == 0
    assert any("communication only" in item.issue for item in run.report.health)


def test_batches_of_v4_3_and_logs_without_times(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match="NCCL_INSPECTOR_DUMP_VERBOSE=1"):
        traces(write(tmp_path, {0: [line(0, n, verbose=False) for n in range(3)]}))
    log = [*batch(0, [1, 2]), {"proxy_trace": {"record_type": "proxy_op"}}, *batch(0, [3, 4])]
    trace = one_trace(write(tmp_path, {0: log}))
    assert (trace.identity.rank, trace.identity.world_size, trace.identity.host) == (0, 2, "node0")
    assert len(names(trace, Kind.KERNEL)) == 4 and len(trace.process_groups) == 1


def test_odd_values_are_left_out_and_counted(tmp_path: Path) -> None:
    sound, odd, torn, empty = (line(0, number) for number in (1, 2, 3, 4))
    odd["coll_perf"]["events"][0]["event_trace_ts"]["kernel_start_ts"] = "soon"
    torn["coll_perf"]["coll_msg_size_bytes"] = -5
    trace = one_trace(write(tmp_path, {0: [sound, odd, torn, {**empty, "coll_perf": None}]}))
    assert len(names(trace, Kind.KERNEL)) == 2 and [r["in_bytes"] for r in trace.collectives.rows()] == [1 << 20, None]
    assert any("1 collectives without times" in note.issue for note in trace.health)
    assert discover([tmp_path]).sources[0].format == "nccl_inspector"


def of_op(record: dict[str, Any], op: str) -> dict[str, Any]:
    return {**record, "coll_perf": {**record["coll_perf"], "coll": op}}


def test_sizes_are_those_of_the_whole_messages_name_their_peer_and_functions_count_apart(tmp_path: Path) -> None:
    ops = [of_op(line(0, 1), "AllGather"), of_op(line(0, 2), "ReduceScatter"), line(0, 3)]
    trace = one_trace(write(tmp_path, {0: ops}))
    sizes = [(r["in_bytes"], r["out_bytes"]) for r in trace.collectives.rows()]
    assert sizes == [(1 << 20, 2 << 20), (2 << 20, 1 << 20), (1 << 20, None)]
    sent = line(0, 1)
    perf = {key.replace("coll", "p2p"): value for key, value in sent.pop("coll_perf").items()}
    calls = [{**sent, "p2p_perf": {**perf, "p2p": op, "p2p_peer": 1}} for op in ("Send", "Recv")]
    trace = one_trace(write(tmp_path, {0: calls}))
    assert {(r["src"], r["dst"]) for r in trace.collectives.rows()} == {(None, 1), (1, None)}
    # Sharded training calls both, numbered alike; of v4.0 a rank may have logged the one and its peer the other.
    log = {r: [of_op(line(r, n), op) for n in range(3)] for r, op in enumerate(("AllGather", "ReduceScatter"))}
    first, second = ({r["seq"] for r in trace.collectives.rows()} for trace in traces(write(tmp_path, log)))
    assert not first & second


def test_a_message_that_fits_no_memory_has_no_size(tmp_path: Path) -> None:
    odd = of_op(line(0, 1), "AllGather")
    odd["coll_perf"]["coll_msg_size_bytes"], odd["header"]["n_ranks"] = 2**49, 2**20
    assert {row["out_bytes"] for row in one_trace(write(tmp_path, {0: [odd, odd]})).collectives.rows()} == {None}


def batch(rank: int, numbers: list[int], dropped: int = 0) -> list[dict[str, Any]]:
    """A batch as v4.3 writes it: one line that names communicator and process, then operations alone."""
    lines = [line(rank, n, version="v4.0") for n in numbers]
    stats = {"coll_records": len(numbers), "coll_dropped_total": dropped, "p2p_records": 0, "p2p_dropped_total": 0}
    marker = {"header": lines[0]["header"], "metadata": lines[0]["metadata"], "dump_stats": stats}
    return [marker, *({"coll_perf": one["coll_perf"]} for one in lines)]


@pytest.mark.parametrize(
    ("log", "kernels", "told", "untold"),
    [
        ([*batch(0, [1, 2]), batch(0, [1])[1]], 2, "1 operations without the line that names", "overwritten"),
        ([*batch(0, [1, 2]), *batch(0, [9], dropped=6)], 3, "6 operations were overwritten", "are in the log"),
        ([line(0, n, version="v4.0") for n in (1, 40, 80)], 3, "3 of 80 collectives are in the log", "overwritten"),
    ],
    ids=["operations of nobody", "what the ring overwrote", "the latest of each interval is a sample"],
)
def test_what_is_lacking_is_told(tmp_path: Path, log: list[Any], kernels: int, told: str, untold: str) -> None:
    trace = one_trace(write(tmp_path, {0: log}))
    assert len(names(trace, Kind.KERNEL)) == kernels and told in issues(trace) and untold not in issues(trace)

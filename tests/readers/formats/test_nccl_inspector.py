"""Logs of NCCL Inspector, with the fields that its source writes (v4.0 and v4.1); made here, not recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shared_formats import names, traces

from ddprof.errors import NoUsableInput
from ddprof.model import Kind
from ddprof.readers import discover

START_US = 1_752_867_229_235_181


def line(rank: int, number: int, late_us: int = 0, version: str = "v4.1", verbose: bool = True) -> dict[str, Any]:
    start = START_US + number * 10_000 + late_us
    stop = START_US + number * 10_000 + 5_000
    times = {"kernel_start_ts": start, "kernel_stop_ts": stop, "kernel_record_ts": stop}
    perf: dict[str, Any] = {
        "coll": "AllReduce",
        "coll_sn": number,
        "coll_msg_size_bytes": 1 << 20,
        "coll_exec_time_us": stop - start,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 1.0,
        "coll_busbw_gbs": 1.5,
    }
    if verbose and version == "v4.0":
        kernels = [{"channel_id": 0, **times}, {"channel_id": 1, **times, "kernel_start_ts": start + 3}]
        perf["event_trace_ts"] = {"coll_start_ts": start, "coll_stop_ts": start, "kernel_events": kernels}
    elif verbose:
        perf["event_trace_ts"] = {"coll_start_ts": start, "coll_stop_ts": start}
        proxy = {"event_type": "ProxyOp", "proxy_start_ts": start, "proxy_stop_ts": stop}
        perf["events"] = [{"event_type": "KernelCh", "channel_id": 0, "event_trace_ts": times}, proxy]
    return {
        "header": {"id": "0x7f8c496ae9f661", "comm_name": "unknown", "rank": rank, "n_ranks": 2, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": version,
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": stop + 500,
            "hostname": "node0",
            "pid": 100 + rank,
        },
        "coll_perf": perf,
    }


def write(folder: Path, lines: dict[int, list[dict[str, Any]]]) -> Path:
    for rank, its in lines.items():
        text = "".join(json.dumps(one) + "\n" for one in its)
        (folder / f"node0-pid{100 + rank}.log").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("version", ["v4.0", "v4.1"])
def test_collectives_with_size_number_and_time(tmp_path: Path, version: str) -> None:
    late = {0: [line(0, n, 0, version) for n in range(4)], 1: [line(1, n, 2_000, version) for n in range(4)]}
    first, second = traces(write(tmp_path, late))
    assert [t.identity.rank for t in (first, second)] == [0, 1]
    assert (first.identity.world_size, first.identity.host, first.identity.pid) == (2, "node0", 100)
    assert names(first, Kind.KERNEL) == ["ncclDevKernel_AllReduce"] * 4
    assert [(r["seq"], r["in_bytes"], r["group_size"]) for r in first.collectives.rows()] == [
        (n, 1 << 20, 2) for n in range(4)
    ]
    kernels = first.events["dur_ns"][first.events["kind"] == Kind.KERNEL]
    assert kernels.tolist() == [5_000_000] * 4
    later = second.events["dur_ns"][second.events["kind"] == Kind.KERNEL]
    assert later.tolist() == [3_000_000] * 4


def test_who_comes_late_is_said_and_computation_is_not(tmp_path: Path) -> None:
    from ddprof.api import analyze

    late = {0: [line(0, n) for n in range(12)], 1: [line(1, n, 2_000) for n in range(12)]}
    run = analyze(write(tmp_path, late), cache=False)
    assert set(run.collectives["last_rank"]) == {1}
    assert run.collectives["longest_wait_us"].tolist() == pytest.approx([2_000] * 12)
    assert run.report.ledger.job["compute"] == 0
    assert any("communication only" in item.issue for item in run.report.health)


def test_a_log_without_times_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match="NCCL_INSPECTOR_DUMP_VERBOSE=1"):
        traces(write(tmp_path, {0: [line(0, n, verbose=False) for n in range(3)]}))


def test_odd_values_are_left_out_and_counted(tmp_path: Path) -> None:
    odd = line(0, 2)
    odd["coll_perf"]["events"][0]["event_trace_ts"]["kernel_start_ts"] = "soon"
    torn = line(0, 3)
    torn["coll_perf"]["coll_msg_size_bytes"] = -5
    lines = [line(0, 1), odd, torn, {**line(0, 4), "coll_perf": None}]
    (trace,) = traces(write(tmp_path, {0: lines}))
    assert len(names(trace, Kind.KERNEL)) == 2
    assert [r["in_bytes"] for r in trace.collectives.rows()] == [1 << 20, None]
    assert any("1 collectives without times" in note.issue for note in trace.health)
    assert discover([tmp_path]).sources[0].format == "nccl_inspector"

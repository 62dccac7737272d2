"""The other formats: each shared sample read, and what is known to be true of it found in the columns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ddprof.errors import NoUsableInput
from ddprof.model import DEVICE_KINDS, Kind, RankTrace
from ddprof.readers import discover, read
from ddprof.readers.companions.files import load_dump
from ddprof.tables import NULL

FORMATS = "traces/formats"


def traces(path: Path) -> list[RankTrace]:
    return [read(source) for source in discover([path]).sources]


def names(trace: RankTrace, kind: Kind) -> list[str]:
    return [trace.strings[n] for n in trace.events["name"][trace.events["kind"] == kind].tolist()]


def test_horovod_rank_seven_is_last(shared_dir: Path) -> None:
    by_rank = {t.identity.rank: t for t in traces(shared_dir / FORMATS / "horovod_timeline")}
    assert sorted(by_rank) == [0, 1, 2, 4, 5, 6, 7] and by_rank[7].identity.world_size == 8
    arrival: dict[int, dict[int, int]] = {}
    for rank, trace in by_rank.items():
        for row, seq in zip(trace.collectives["row"].tolist(), trace.collectives["seq"].tolist(), strict=True):
            arrival.setdefault(seq, {})[rank] = int(trace.events["ts_ns"][row])
    last = [max(its, key=lambda r: its[r]) for its in arrival.values()]
    assert (len(last), last.count(7)) == (90, 83)
    assert all(len(names(t, Kind.KERNEL)) == len(t.collectives) for t in by_rank.values())


def test_pipeline_timeline_workers(shared_dir: Path) -> None:
    workers = traces(shared_dir / "traces/multi_rank/megatron_pp_last_stage_slow_8gpu")
    assert [t.identity.rank for t in workers] == list(range(8))
    compute = [
        float(
            np.median(
                t.events["dur_ns"][[i for i, n in enumerate(t.events["name"]) if t.strings[n] == "forward-compute"]]
            )
        )
        for t in workers
    ]
    assert min(compute[6:]) > 1.15 * max(compute[:6])  # the last stage is slow
    for trace in workers:
        marks = trace.events["kind"] == Kind.ANNOTATION
        assert int(marks.sum()) == 32
        start, dur = trace.events["ts_ns"][marks], trace.events["dur_ns"][marks]
        np.testing.assert_array_equal(start[1:], (start + dur)[:-1])
        assert abs(float(dur.mean()) / 1e9 - 2.2144) < 0.001


def test_pipeline_messages_pair_up(shared_dir: Path) -> None:
    sent, received = set(), set()
    for trace in traces(shared_dir / "traces/multi_rank/megatron_pp_last_stage_slow_8gpu"):
        for row in trace.collectives.rows():
            op, key = trace.strings[row["op"]], (trace.identity.rank, row["dst"], row["src"])
            if op == "send":
                sent.add((key[0], key[1]))
            elif op == "recv":
                received.add((key[2], key[0]))
    assert sent == received and len(sent) == 12


def test_timeline_json_gives_the_waits_of_the_parquet(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "traces/multi_rank/megatron_pp_last_stage_slow_8gpu"
    (tmp_path / "timeline-ST.json.gz").symlink_to(folder / "timeline-ST.json.gz")
    from_json, from_parquet = traces(tmp_path), traces(folder)
    for a, b in zip(from_json, from_parquet, strict=True):
        busy_a, busy_b = (int(t.events["dur_ns"][t.events["kind"] == Kind.KERNEL].sum()) for t in (a, b))
        assert abs(busy_a - busy_b) < 0.05 * busy_b
    assert "without the waits" in from_json[0].health[0].issue


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("h100_2gpu_1s", [1721, 1721]),
        ("mfu_2gpu_before", [1993, 2017]),
        ("nsys_2024_h200_report1", [18]),
        ("nvtx_only_old_export", [0]),
    ],
)
def test_nsys(shared_dir: Path, name: str, kernels: list[int]) -> None:
    found = traces(shared_dir / FORMATS / "nsys_sqlite" / f"{name}.sqlite.gz")
    assert [len(names(t, Kind.KERNEL)) for t in found] == kernels
    assert [t.identity.rank for t in found] == list(range(len(kernels)))
    for trace in found:
        assert trace.has_base_time and (trace.events["dur_ns"] >= 0).all()
        device = np.isin(trace.events["kind"], DEVICE_KINDS)
        calls = trace.events["correlation"][trace.events["kind"] == Kind.RUNTIME]
        assert not device.any() or np.isin(trace.events["correlation"][device], calls).any()
        assert not any(n.endswith("_v7000") for n in names(trace, Kind.RUNTIME))


def test_nsys_ranges_of_torch_are_operators(shared_dir: Path) -> None:
    first = traces(shared_dir / FORMATS / "nsys_sqlite" / "h100_2gpu_1s.sqlite.gz")[0]
    operators = names(first, Kind.CPU_OP)
    assert "aten::view" in operators and not any("op_id" in n for n in operators)
    assert (first.events["external_id"][first.events["kind"] == Kind.CPU_OP] != NULL).any()


def test_an_empty_capture_says_that_it_is_empty(shared_dir: Path) -> None:
    with pytest.raises(NoUsableInput, match="the capture is empty: no kernels and no NVTX ranges"):
        discover([shared_dir / FORMATS / "nsys_sqlite" / "empty_capture.sqlite.gz"])


def test_rocprof_database_and_json_agree(shared_dir: Path) -> None:
    by_format = {t.format: t for t in traces(shared_dir / FORMATS / "rocm_rpd")}
    database, text = by_format["rpd"], by_format["chrome"]
    for kind in (Kind.KERNEL, Kind.MEMCPY):
        assert len(names(database, kind)) == len(names(text, kind)) > 0
    assert set(names(text, Kind.RUNTIME)) < set(names(database, Kind.RUNTIME))
    assert database.device.kind == text.device.kind == "rocm"
    assert np.abs(np.sort(database.events["ts_ns"]) - np.sort(text.events["ts_ns"])).max() < 1000
    device = np.isin(database.events["kind"], DEVICE_KINDS)
    assert (database.events["correlation"][device] != NULL).all()
    assert database.copies["size_bytes"].max() == 2_000_000_000


def test_flight_recorder_json_and_pickle_agree(shared_dir: Path) -> None:
    folder = shared_dir / FORMATS / "flight_recorder"
    for rank in range(4):
        from_json = load_dump((folder / f"fr_rank_{rank}.json").read_bytes())
        from_pickle = load_dump((folder / f"nccl_trace_rank_{rank}").read_bytes())
        assert [e["collective_seq_id"] for e in from_json["entries"]] == list(range(1, 14))
        assert [e["profiling_name"] for e in from_json["entries"]] == [
            e["profiling_name"] for e in from_pickle["entries"]
        ]


def test_flight_recorder_without_times_is_refused_in_one_line(tmp_path: Path) -> None:
    entries = [{"collective_seq_id": 1, "profiling_name": "gloo:all_reduce", "time_created_ns": 0}]
    (tmp_path / "fr_rank_0.json").write_text(json.dumps({"pg_status": {}, "entries": entries}))
    with pytest.raises(NoUsableInput, match="1 collectives without times"):
        traces(tmp_path)


def test_each_rank_is_one_source_though_it_is_there_twice(shared_dir: Path) -> None:
    ranks = traces(shared_dir / FORMATS / "flight_recorder")
    assert [t.identity.rank for t in ranks] == [0, 1, 2, 3]
    assert all(t.events["ts_ns"].min() > 10**18 for t in ranks)


def test_flight_recorder_alone(shared_dir: Path, tmp_path: Path) -> None:
    for rank in range(2):
        name = f"rank{rank}.0.fr.json"
        (tmp_path / name).symlink_to(shared_dir / "traces/cpu_gloo/ddp-cnn-2r-slowrank" / name)
    ranks = traces(tmp_path)
    assert [(t.identity.rank, t.identity.world_size, t.identity.backend) for t in ranks] == [
        (0, 2, "gloo"),
        (1, 2, "gloo"),
    ]
    for trace in ranks:
        assert len(trace.collectives) == len(trace.flight_recorder) == 40 and trace.has_base_time
        assert trace.process_groups[0].ranks == (0, 1)
        assert (trace.collectives["in_bytes"] > 0).all()
    assert (ranks[0].collectives["seq"] == ranks[1].collectives["seq"]).all()


def test_nccl_profiler_kernels_belong_to_the_rank_that_launched_them(shared_dir: Path) -> None:
    ranks = traces(shared_dir / FORMATS / "nccl_profiler_jsonl")
    assert [t.identity.local_device for t in ranks] == [0, 1, 2, 3]
    assert [names(t, Kind.KERNEL) for t in ranks] == [["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]] * 4
    for trace in ranks:
        (row,) = trace.collectives.rows()
        assert (row["seq"], row["in_bytes"], row["group_size"]) == (0, 4 * 33554432, 4)


def test_tensorflow_without_device_events_says_so(shared_dir: Path) -> None:
    (trace,) = traces(shared_dir / FORMATS / "tensorflow")
    assert "train_function" in names(trace, Kind.CPU_OP)
    assert any("8 devices but no device events" in h.issue for h in trace.health)


def test_an_execution_trace_is_recognised(shared_dir: Path) -> None:
    with pytest.raises(NoUsableInput, match="this is an execution trace, not a timeline; capture one with"):
        discover([shared_dir / FORMATS / "execution_trace"])

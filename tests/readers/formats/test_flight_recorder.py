"""Flight-recorder dumps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shared_formats import FORMATS, traces

from ddprof.errors import NoUsableInput
from ddprof.readers.companions.flight_recorder import load_dump


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

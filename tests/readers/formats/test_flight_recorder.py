"""Flight-recorder dumps."""

import json
import zipfile
from pathlib import Path

import pytest
from reading import FORMATS, json_trace, traces

from ddprof.errors import NoUsableInput
from ddprof.flight_recorder import Dump
from ddprof.readers.side_files.sidecar import load_dump


def test_flight_recorder_json_and_pickle_agree_and_dumps_alone_are_ranks(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / FORMATS / "flight_recorder"
    for rank in range(4):
        from_json, unfit = load_dump((folder / f"fr_rank_{rank}.json").read_bytes(), Dump)
        from_pickle, unfit_too = load_dump((folder / f"nccl_trace_rank_{rank}").read_bytes(), Dump)
        assert unfit == unfit_too == []
        assert [e.collective_seq_id for e in from_json.entries] == list(range(1, 14))
        assert [e.profiling_name for e in from_json.entries] == [e.profiling_name for e in from_pickle.entries]
        assert from_pickle.pg_config == from_json.pg_config
    ranks = traces(folder)  # each is one source though it is there twice
    assert [t.identity.rank for t in ranks] == [0, 1, 2, 3]
    assert all(t.events["ts_ns"].min() > 10**18 for t in ranks)
    for name in ("rank0.0.fr.json", "rank1.0.fr.json"):
        (tmp_path / name).symlink_to(shared_dir / "traces/cpu_gloo/ddp-cnn-2r-slowrank" / name)
    ranks = traces(tmp_path)
    for rank, trace in enumerate(ranks):
        assert (trace.identity.rank, trace.identity.world_size, trace.identity.backend) == (rank, 2, "gloo")
        assert len(trace.collectives) == len(trace.flight_recorder) == 40 and trace.has_base_time
        assert trace.process_groups[0].ranks == (0, 1) and (trace.collectives["in_bytes"] > 0).all()
    assert (ranks[0].collectives["seq"] == ranks[1].collectives["seq"]).all()


def test_flight_recorder_without_times_is_refused_in_one_line(tmp_path: Path) -> None:
    entries = [{"collective_seq_id": 1, "profiling_name": "gloo:all_reduce", "time_created_ns": 0}]
    with pytest.raises(NoUsableInput, match="1 collectives without times"):
        json_trace(tmp_path / "fr_rank_0.json", {"pg_status": {}, "entries": entries})


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


def test_dumps_in_an_archive_are_a_rank_each(tmp_path: Path) -> None:
    dump = json.dumps({"pg_status": {}, "pg_config": {}, "entries": [ENTRY]})
    with zipfile.ZipFile(tmp_path / "dumps.zip", "w") as archive:
        for rank in range(4):
            archive.writestr(f"run/fr_rank_{rank}.json", dump)
    assert [t.identity.rank for t in traces(tmp_path)] == [0, 1, 2, 3]

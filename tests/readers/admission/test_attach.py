"""A damaged companion is a note, not a failure."""

import shutil
from pathlib import Path

from reading import issues, our_run, read_all, written_rank

from ddprof.readers import discover, read
from ddprof.sidecar import Sidecar


def test_a_damaged_companion_is_a_note_not_a_failure(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=1)
    (tmp_path / "run" / "rank0.host.100.0.sidecar.json").write_text('{"schema": "ddprof.run/1", "rank"')
    trace = read(discover([tmp_path / "run"]).sources[0])
    assert trace.sidecar == Sidecar() and trace.identity.source == "file name"
    assert "sidecar.json: not usable" in issues(trace)
    (tmp_path / "run" / "rank0.host.100.0.sidecar.json").rename(tmp_path / "run" / "rank0.host.1000.0.sidecar.json")
    assert discover([tmp_path / "run"]).sources[0].sidecar_path is None  # of another process


def test_ranks_of_a_tensorflow_job_are_one_run_with_their_sidecars(tmp_path: Path) -> None:
    process = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/host:CPU"}}
    span = {"ph": "X", "name": "MatMul", "pid": 1, "tid": 1, "ts": 5, "dur": 7}
    for rank in range(2):
        written_rank(tmp_path / f"rank{rank}.host.{100 + rank}.0", rank, 2, [process, span], "tf")
    inventory = discover([tmp_path])
    assert [len(sources) for _, sources in inventory.runs] == [2]
    told = [(t.format, t.identity.rank, t.identity.source, t.identity.world_size) for t in read_all(inventory)]
    assert told == [("tensorflow", rank, "sidecar", 2) for rank in range(2)]


def test_what_an_archive_holds_beside_the_traces_is_said(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=1)
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "run")
    inventory = discover([archive])
    assert len(inventory.sources) == 2
    assert any(f"{archive}: 3 files of ddprof beside the traces" in note.issue for note in inventory.health)
    assert sum("a flight-recorder dump of a rank without a trace" in note.issue for note in inventory.health) == 2

"""Sources are found by content wherever they are, and companions beside them."""

import gzip
import shutil
from pathlib import Path

import fsspec
import kineto_text as kt
import pytest
from reading import EVENTS, MALFORMED, file_names, issues, our_run, read_all, refusal, written_rank

from ddprof.readers import discover, read
from ddprof.readers.admission import discover as admitted
from ddprof.readers.admission.discover import Late
from ddprof.sidecar import Sidecar


def test_names_do_not_matter(tmp_path: Path) -> None:
    kt.write(tmp_path / "a.dat", EVENTS)
    (tmp_path / "b").write_bytes(gzip.compress(kt.render(EVENTS, "list")))
    (tmp_path / "c.json").write_text('{"some": "settings"}')
    (tmp_path / "d.json").write_text("")
    inventory = discover([tmp_path])
    assert file_names(inventory) == ["a.dat", "b"]
    assert [len(t.events) for t in read_all(inventory)] == [5, 5]
    texts = " ".join(f"{h.issue} ({h.severity})" for h in inventory.health)
    assert "d.json: an empty file (warning)" in texts and "1 other file (JSON, but not a trace) (info)" in texts


def test_a_trace_that_ends_in_its_header_is_named(tmp_path: Path) -> None:
    kt.write(tmp_path / "rank0.json", EVENTS)
    for name, text in (("rank1.pt.trace.json", '{"schemaVersion": 1,'), ("rank2.pt.trace.json.gz", "{}")):
        (tmp_path / name).write_text(text)
        assert [note for note in discover([tmp_path]).health if name in note.issue and note.severity == "warning"]


def test_fsspec_urls(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("/ddprof-test/run/rank1.json.gz", gzip.compress(kt.render(EVENTS)))
    (trace,) = read_all(discover(["memory://ddprof-test/run"]))
    assert (trace.identity.rank, len(trace.events)) == (1, 5)
    assert "no such file, folder or bucket" in refusal("memory://ddprof-test/nothing")


def test_events_after_megabytes_of_metadata_and_paths_without_any(tmp_path: Path) -> None:
    assert "no such file or folder" in refusal(tmp_path / "nothing") and "no trace found" in refusal(tmp_path)
    metadata = {"text": "x" * 3_000_000, "decoy": '"traceEvents": ['}
    kt.write(tmp_path / "t.json", EVENTS, header={"metadata": metadata})
    assert [len(t.events) for t in read_all(discover([tmp_path]))] == [5]


def test_a_folder_of_large_logs_is_read_in_part_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / f"{number}.log").write_text("12:00 some line\n" * 200_000)
    kt.write(tmp_path / "t.json", EVENTS)
    assert discover([tmp_path]).health == ()
    monkeypatch.setattr(admitted, "Late", lambda: Late(5_000_000))
    inventory = discover([tmp_path])
    assert [len(t.events) for t in read_all(inventory)] == [5]
    assert [note.effect for note in inventory.health] == ["only the beginning of further files was searched"]


@pytest.mark.usefixtures("decoding")
def test_the_folder_as_a_whole_names_every_file_it_leaves_out(shared_dir: Path) -> None:
    inventory = discover([shared_dir / MALFORMED])
    named = " ".join(s.path for s in inventory.sources) + " ".join(h.issue for h in inventory.health)
    assert all(path.name in named for path in (shared_dir / MALFORMED).glob("[!.]*"))


def test_a_damaged_companion_is_a_note_not_a_failure(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=1)
    sidecar = tmp_path / "run" / "rank0.host.100.0.sidecar.json"
    sidecar.write_text('{"schema": "ddprof.run/1", "rank"')
    trace = read(discover([tmp_path / "run"]).sources[0])
    assert trace.sidecar == Sidecar() and trace.identity.source == "file name"
    assert "sidecar.json: not usable" in issues(trace)
    sidecar.rename(tmp_path / "run" / "rank0.host.1000.0.sidecar.json")
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

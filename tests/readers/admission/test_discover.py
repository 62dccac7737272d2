"""Sources are found by content wherever they are, with their companions, and grouped by the run they belong to."""

import gzip
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import fsspec
import kineto_text as kt
import pytest
from reading import EVENTS, file_names, issues, our_run, rank_file, ranks_of, read_all, recorded, refusal, written_rank

from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers import discover, read
from ddprof.readers.admission import discover as admitted
from ddprof.readers.admission.discover import Late
from ddprof.readers.admission.runs import labels
from ddprof.sidecar import Sidecar


def test_names_do_not_matter(tmp_path: Path) -> None:
    kt.write(tmp_path / "a.dat", EVENTS)
    (tmp_path / "b").write_bytes(gzip.compress(kt.render(EVENTS, "list")))
    (tmp_path / "c.json").write_text('{"some": "settings"}')
    (tmp_path / "d.json").write_text("")
    inventory = discover([tmp_path])
    assert file_names(inventory) == ["a.dat", "b"] and [len(t.events) for t in read_all(inventory)] == [5, 5]
    texts = " ".join(f"{h.issue} ({h.severity})" for h in inventory.health)
    assert (
        "d.json: an empty file (warning)" in texts
        and f"1 other file (JSON, but not a trace): {tmp_path}/c.json (info)" in texts
    )


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
    kt.write(tmp_path / "t.json", EVENTS, header={"metadata": {"text": "x" * 3_000_000, "decoy": '"traceEvents": ['}})
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
    folder = shared_dir / "traces/edge_cases/malformed"
    inventory = discover([folder])
    named = " ".join(s.path for s in inventory.sources) + " ".join(h.issue for h in inventory.health)
    assert all(path.name in named for path in folder.glob("[!.]*"))


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
    folder = our_run(tmp_path / "run", windows=1)
    (folder / "rank0.host.100.0.fr.json").write_text('{"version": "2.10", "entries": [{"collective_seq_id": 0}]}')
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    packed, unpacked = (" ".join(note.issue for note in discover([path]).health) for path in (archive, folder))
    assert len(discover([archive]).sources) == 2 and f"{archive}: 3 files of ddprof beside the traces" in packed
    assert [said.count("a flight-recorder dump that belongs to no trace") for said in (packed, unpacked)] == [3, 0]
    assert not any(trace.unlink() for trace in folder.glob("*.pt.trace.json"))
    assert all(dump.manifest_paths for dump in discover([folder]).sources)  # which say how the job ended


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("rank1.json", os.mkfifo, "a named pipe, not a regular file"),
        ("rank1.json", _socket, "a socket, not a regular file"),
        ("rank1.json", lambda path: path.symlink_to("/dev/zero"), "a device, not a regular file"),
        (
            "rank1.json",
            lambda path: path.symlink_to("/proc/self/status"),
            "cannot be read: a file of the kernel, not a regular file",
        ),
        ("rank1.json", lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
        *((name, lambda path: path.symlink_to("gone"), "a link to nothing") for name in ("notes.txt", "latest")),
    ],
)
def test_what_is_no_file_is_left_out(tmp_path: Path, name: str, make: Callable[[Path], None], words: str) -> None:
    rank_file(tmp_path / "rank0.json", 0)
    make(tmp_path / name)
    inventory = discover([tmp_path])
    assert file_names(inventory) == ["rank0.json"]
    assert [f"{tmp_path / name}: {words}"] == [note.issue for note in inventory.health]
    if words != "a link to nothing":
        assert words.partition(",")[0] in refusal(tmp_path / name)


def test_what_vanishes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = discover([f"file://{rank_file(tmp_path / 'rank0.json', 0)}"]).sources
    assert source.path == f"{tmp_path}/rank0.json"  # a local URL is a path
    rank_file(tmp_path / "rank1.json", 1)
    look = os.stat

    def stat(path: str | Path, **how: object) -> os.stat_result:
        if str(path).endswith("rank1.json"):
            os.unlink(path)
        return look(path)

    monkeypatch.setattr(os, "stat", stat)
    assert [note.issue for note in discover([tmp_path]).health] == [f"{tmp_path}/rank1.json: vanished"]
    os.unlink(source.path)
    with pytest.raises(NoUsableInput, match="No such file or directory"):
        read(source)


@pytest.mark.parametrize("name", [b"caf\xe9.json", b"new\nline \x1b[31m.json"])
def test_any_name_of_a_file_works_and_can_be_written(tmp_path: Path, name: bytes) -> None:
    rank_file(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))), 0)
    inventory = discover([tmp_path])
    trace = read(inventory.sources[0])
    for text in (trace.path, trace.identity.host or "", inventory.runs[0][0]):
        text.encode()
    assert all(note.issue.isprintable() for note in trace.health)


def test_unrelated_folders_are_separate_runs_and_hosts_are_one(tmp_path: Path) -> None:
    rank_file(tmp_path / "first" / "rank0.json", 0)
    rank_file(tmp_path / "second" / "node0" / "rank0.json", 0)
    rank_file(tmp_path / "second" / "node1" / "rank1.json", 1)
    assert ranks_of(discover([tmp_path])) == [("first", 1), ("second", 2)]


def test_a_run_folder_gives_the_last_window_with_its_companions(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=2, restarts=2)
    inventory, stems = discover([tmp_path / "run"]), ("rank0.host.110.1", "rank1.host.111.1")
    assert file_names(inventory) == [f"{stem}.1.pt.trace.json" for stem in stems]
    assert [Path(s.sidecar_path or "").name for s in inventory.sources] == [f"{stem}.sidecar.json" for stem in stems]
    traces = read_all(inventory)
    assert [[e.collective_seq_id for e in t.flight_recorder] for t in traces] == [[1], [1]]
    assert [(t.identity.rank, t.identity.source) for t in traces] == [(0, "sidecar"), (1, "sidecar")]
    assert any("4 trace windows" in h.issue for h in inventory.health)
    assert file_names(discover([tmp_path / "run"], window=1)) == [f"rank{r}.host.10{r}.0.0.pt.trace.json" for r in "01"]
    with pytest.raises(UsageError, match="--window 5: this run has 4 windows"):
        discover([tmp_path / "run"], window=5)
    (tmp_path / "run" / "rank0.host.999.1.2.pt.trace.json").write_bytes(Path(inventory.sources[0].path).read_bytes())
    assert file_names(mixed := discover([tmp_path / "run"])) == file_names(inventory) and "2 proc" in str(mixed.health)


def test_the_last_attempt_in_a_folder_that_is_used_again_is_taken_whatever_its_windows(tmp_path: Path) -> None:
    for written_s, (pid, windows) in enumerate([(9, 5), (8, 2)]):
        for window in range(windows):
            path = rank_file(tmp_path / f"rank0.host.{pid}.0.{window}.pt.trace.json", 0)
            os.utime(path, (written_s, 100 * written_s + 100 - window))  # within a process, the windows' numbers count
    assert file_names(discover([tmp_path])) == ["rank0.host.8.0.1.pt.trace.json"]
    assert file_names(discover([tmp_path], window=5)) == ["rank0.host.9.0.4.pt.trace.json"]


def test_the_latest_link_is_one_run(tmp_path: Path) -> None:
    our_run(tmp_path / "20261121-a", windows=1)
    our_run(tmp_path / "20261121-b", windows=1)
    os.symlink("20261121-b", tmp_path / "latest")
    assert [size for _, size in ranks_of(discover([tmp_path / "latest"]))] == [2]
    assert ranks_of(discover([tmp_path])) == [("20261121-a", 2), ("20261121-b", 2)]


def test_tensorboard_windows_of_one_process(tmp_path: Path) -> None:
    for rank, pid in ((0, 77), (1, 78)):
        for stamp in (1623143089861, 1623143099861):
            rank_file(tmp_path / f"host_{pid}.{stamp}.pt.trace.json", rank)
    assert file_names(discover([tmp_path])) == [f"host_{pid}.1623143099861.pt.trace.json" for pid in (77, 78)]


def _named(*paths: Path) -> list[str]:
    return [label for label, _ in discover(paths).runs]


def test_a_folder_of_traces_is_called_by_its_job(tmp_path: Path) -> None:
    mnist, gpt = recorded(tmp_path / "mnist" / "traces"), recorded(tmp_path / "gpt" / "profiler_logs")
    assert _named(mnist) == ["mnist"] and _named(mnist.parent) == ["mnist"]
    assert _named(mnist, gpt) == ["mnist", "gpt"] and sorted(_named(tmp_path)) == ["gpt", "mnist"]


def test_runs_that_would_be_called_alike_keep_their_folders(tmp_path: Path) -> None:
    assert labels(["", "logs"], ["/traces", "/logs"]) == ["traces", "logs"]  # no part tells: the last is the name
    recorded(tmp_path / "mnist" / "traces"), recorded(tmp_path / "mnist" / "profile")
    assert sorted(_named(tmp_path)) == ["mnist/profile", "mnist/traces"]
    assert sorted(_named(tmp_path / "mnist")) == ["profile", "traces"]


def test_any_other_word_tells_a_run_and_the_name_of_a_file_where_there_is_one(tmp_path: Path) -> None:
    for name in ("trace_2", "traces_amp", "tracer-bullet"):
        assert _named(recorded(tmp_path / name)) == [name]
    rank_file(tmp_path / "mnist" / "trace.json", 0)
    assert _named(tmp_path / "mnist") == _named(tmp_path / "mnist" / "trace.json") == ["mnist"]
    rank_file(tmp_path / "logs" / "amp.json", 0)
    assert _named(tmp_path / "logs") == ["amp"]


def test_a_folder_that_capture_wrote_names_its_run_however_many_ranks_it_holds(tmp_path: Path) -> None:
    our_run(tmp_path / "alone", windows=1, ranks=1)
    our_run(tmp_path / "pair", windows=1)
    assert _named(tmp_path / "alone") == ["alone"] and _named(tmp_path / "pair") == ["pair"]
    rank_file(tmp_path / "logs" / "rank0.host.100.0.0.pt.trace.json", 0)
    assert _named(tmp_path / "logs") == ["rank0.host.100.0.0"]  # copied from such a folder, alone

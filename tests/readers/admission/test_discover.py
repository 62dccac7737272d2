"""Sources are found by content wherever they are, and grouped by the run they belong to."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from pathlib import Path
from random import Random

import fsspec
import kineto_text as kt
import pytest

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers import Inventory, discover, read

EVENTS = [kt.span(f"op {i}", i * 1000, 500) for i in range(5)]


def ranks_of(inventory: Inventory) -> list[tuple[str, int]]:
    return [(label, len(sources)) for label, sources in inventory.runs]


def rank_file(path: Path, rank: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return kt.write(path, EVENTS, header={"distributedInfo": {"rank": rank, "world_size": 2}})


def read_all(inventory: Inventory) -> list[RankTrace]:
    return [read(source) for source in inventory.sources]


def test_names_do_not_matter(tmp_path: Path) -> None:
    kt.write(tmp_path / "a.dat", EVENTS)
    (tmp_path / "b").write_bytes(gzip.compress(kt.render(EVENTS, "list")))
    (tmp_path / "c.json").write_text('{"some": "settings"}')
    (tmp_path / "d.json").write_text("")
    inventory = discover([tmp_path])
    assert [Path(s.path).name for s in inventory.sources] == ["a.dat", "b"]
    assert [len(t.events) for t in read_all(inventory)] == [5, 5]
    texts = [f"{h.issue} ({h.severity})" for h in inventory.health]
    assert any("d.json: an empty file (warning)" in t for t in texts)
    assert any("1 other file (JSON, but not a trace) (info)" in t for t in texts)


def test_unrelated_folders_are_separate_runs_and_hosts_are_one(tmp_path: Path) -> None:
    rank_file(tmp_path / "first" / "rank0.json", 0)
    rank_file(tmp_path / "second" / "node0" / "rank0.json", 0)
    rank_file(tmp_path / "second" / "node1" / "rank1.json", 1)
    assert ranks_of(discover([tmp_path])) == [("first", 1), ("second", 2)]


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_damaged_archives_are_one_line(tmp_path: Path, kind: str) -> None:
    sound, random = io.BytesIO(), Random(kind)
    if kind == "zip":
        with zipfile.ZipFile(sound, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rank0.json", random.randbytes(4000))
    else:
        with tarfile.open(fileobj=sound, mode=f"w:{kind.partition('.')[2]}") as tar:
            member = tarfile.TarInfo("rank0.json")
            member.size = 4000
            tar.addfile(member, io.BytesIO(random.randbytes(4000)))
    path = tmp_path / "archive"
    for _ in range(60):
        broken = bytearray(sound.getvalue())
        for _ in range(random.choice((1, 20))):
            broken[-random.randrange(1, random.choice((100, len(broken))))] = random.randrange(256)
        path.write_bytes(broken[: random.randrange(len(broken) // 2, len(broken) + 1)])
        with pytest.raises(NoUsableInput) as refused:
            discover([path])
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_archives_are_folders(tmp_path: Path, kind: str) -> None:
    paths = [rank_file(tmp_path / "in" / f"rank{r}.json", r) for r in range(2)]
    archive = tmp_path / f"run.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in paths:
                file.write(path, f"run/{path.name}")
    else:
        with tarfile.open(archive, "w:gz" if kind.endswith("gz") else "w") as tar:
            for path in paths:
                tar.add(path, f"run/{path.name}")
    inventory = discover([archive])
    assert [t.identity.rank for t in read_all(inventory)] == [0, 1]
    assert [size for _, size in ranks_of(inventory)] == [2]
    assert inventory.sources[0].label.endswith("!run/rank0.json")


def test_fsspec_urls(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/ddprof-test/run/rank1.json.gz", gzip.compress(kt.render(EVENTS)))
    inventory = discover(["memory://ddprof-test/run"])
    (trace,) = read_all(inventory)
    assert (trace.identity.rank, len(trace.events)) == (1, 5)
    with pytest.raises(NoUsableInput, match="no such file or folder"):
        discover(["memory://ddprof-test/nothing"])


def our_run(folder: Path, windows: int = 2, restarts: int = 1) -> None:
    """A run folder as the capture writes it."""
    (folder / ".shim").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": "ddprof.run/1", "world_size": 2}))
    for rank in range(2):
        for restart in range(restarts):
            stem = f"rank{rank}.host.{100 + rank + 10 * restart}.{restart}"
            sidecar = {"schema": "ddprof.run/1", "state": "exit", "rank": rank, "world_size": 2, "restart": restart}
            (folder / f"{stem}.sidecar.json").write_text(json.dumps(sidecar))
            for window in range(windows):
                kt.write(folder / f"{stem}.{window}.pt.trace.json", EVENTS)
                dump = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [{"op_id": window}]}
                (folder / f"{stem}.{window}.fr.json").write_text(json.dumps(dump))


def test_a_run_folder_gives_the_last_window_with_its_companions(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=2, restarts=2)
    inventory = discover([tmp_path / "run"])
    assert [Path(s.path).name for s in inventory.sources] == [
        "rank0.host.110.1.1.pt.trace.json",
        "rank1.host.111.1.1.pt.trace.json",
    ]
    traces = read_all(inventory)
    assert [t.sidecar["restart"] for t in traces] == [1, 1]
    assert [t.flight_recorder for t in traces] == [({"op_id": 1},), ({"op_id": 1},)]
    assert [(t.identity.rank, t.identity.source) for t in traces] == [(0, "sidecar"), (1, "sidecar")]
    assert any("6 earlier windows or restarts" in h.issue for h in inventory.health)


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
    inventory = discover([tmp_path])
    assert [Path(s.path).name for s in inventory.sources] == [
        "host_77.1623143099861.pt.trace.json",
        "host_78.1623143099861.pt.trace.json",
    ]


def test_events_after_megabytes_of_metadata(tmp_path: Path) -> None:
    header = {"metadata": {"text": "x" * 3_000_000, "decoy": '"traceEvents": ['}}
    kt.write(tmp_path / "t.json", EVENTS, header=header)
    assert [len(t.events) for t in read_all(discover([tmp_path]))] == [5]


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match="no such file or folder"):
        discover([tmp_path / "nothing"])
    with pytest.raises(NoUsableInput, match="no trace found"):
        discover([tmp_path])


def test_pickles_that_ask_for_code_are_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/owned",)

    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"pg_config": {}, "entries": [Evil()]}, protocol=2))
    (source,) = discover([tmp_path]).sources
    with pytest.raises(NoUsableInput, match="refused"):
        read(source)
    assert not (tmp_path / "owned").exists()


def test_a_damaged_companion_is_a_note_not_a_failure(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=1)
    (tmp_path / "run" / "rank0.host.100.0.sidecar.json").write_text('{"schema": "ddprof.run/1", "rank"')
    trace = read(discover([tmp_path / "run"]).sources[0])
    assert trace.sidecar == {} and trace.identity.source == "file name"
    assert any("sidecar.json: not usable" in h.issue for h in trace.health)

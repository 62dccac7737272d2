"""Files in a store: listed, read by ranges, and what goes wrong with them in one line."""

import gzip
import random
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fsspec
import kineto_text as kt
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from reading import EVENTS, our_run, ranks_of, read_all, refusal

from ddprof.errors import NoUsableInput
from ddprof.readers import Source, discover, read
from ddprof.readers.files import remote
from ddprof.readers.files.remote import HEAD_BLOCK_BYTES, walk_remote
from ddprof.readers.side_files.stacks import side_files
from ddprof.untrusted.stores import remote_file


class DriverError(Exception):
    """An error that no library below a driver derives from OSError."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryFileSystem:
    """`memory://`, empty."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return MemoryFileSystem()


def break_down(monkeypatch: pytest.MonkeyPatch, method: str, ending: str, words: str) -> None:
    """The driver of `memory://` raises an error of its own in this method, for paths with this ending."""
    works = getattr(MemoryFileSystem, method)

    def fails(store: MemoryFileSystem, path: str, *args: Any, **kwargs: Any) -> Any:
        if path.endswith(ending):
            raise DriverError(words)
        return works(store, path, *args, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, method, fails)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """First and last byte of each range that is asked for."""
    s3fs = pytest.importorskip("s3fs")
    asked: list[tuple[int, int]] = []
    fetch = s3fs.S3File._fetch_range

    def noted(file: Any, start: int, end: int) -> Any:
        asked.append((start, min(end, file.size)))
        return fetch(file, start, end)

    monkeypatch.setattr(s3fs.S3File, "_fetch_range", noted)
    return asked


def test_a_trace_is_streamed(bucket: str, requests: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "STREAM_BLOCK_BYTES", 1 << 18)
    noise = random.Random(0)
    spans = [kt.span(noise.randbytes(2_000).hex(), i * 1000, 500) for i in range(300)]
    content = gzip.compress(kt.render(spans), 1)
    assert len(content) > 2 * remote.STREAM_BLOCK_BYTES
    with fsspec.open(f"{bucket}/run/rank0.json.gz", "wb") as file:
        file.write(content)
    (source,) = discover([bucket]).sources
    assert sum(end - start for start, end in requests) <= 2 * HEAD_BLOCK_BYTES
    requests.clear()
    assert len(read(source).events) == 300
    assert sum(end - start for start, end in requests) == len(content)  # each byte once
    assert max(end - start for start, end in requests) <= remote.STREAM_BLOCK_BYTES


def test_a_run_folder_in_a_bucket_is_read_as_the_one_on_disk(bucket: str, tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=1)
    for kind in ("workers", "stacks", "worker3.9.stacks"):
        (tmp_path / "run" / f"rank0.host.100.0.{kind}.jsonl").write_text("{}\n")
    files, path = fsspec.core.url_to_fs(f"{bucket}/run/")
    files.put(f"{tmp_path}/run/", path, recursive=True)
    here, there = discover([tmp_path / "run"]), discover([f"{bucket}/run"])
    assert ranks_of(here) == ranks_of(there)

    def beside(source: Source, root: str) -> list[str]:
        paths = [source.path, source.sidecar_path, source.flight_recorder_path, *source.manifest_paths]
        paths += [path for files in side_files(source.sidecar_path) for path in files]
        return [str(path).replace(root, "") for path in paths]

    for one, other in zip(here.sources, there.sources, strict=True):
        assert beside(one, f"{tmp_path}/run") == beside(other, f"{bucket}/run")
    assert [t.identity for t in read_all(here)] == [t.identity for t in read_all(there)]


TOLD = {"s3fs": {"ETag": '"1"', "LastModified": datetime(2026, 1, 1, tzinfo=timezone.utc)}}
TOLD |= {"gcsfs": {"generation": "1", "updated": "2026-01-01T00:00:00Z"}, "others": {"mtime": 1767225600.0}}
TOLD |= {"no time": {"etag": "1", "updated": "yesterday"}}


@pytest.mark.parametrize("driver", TOLD)
def test_what_drivers_tell_of_a_file_changes_with_it(driver: str) -> None:
    told, written_s = TOLD[driver], 0 if driver == "no time" else 1767225600
    info = {"name": "/run/a", "size": 7, "type": "file", **told}
    file = remote_file(MemoryFileSystem(), info)
    assert (file.url, file.size_bytes, file.written_s) == ("memory:///run/a", 7, written_s)
    others = [{**info, "size": 8}, *({**info, name: f"{value}2"} for name, value in told.items() if name != "updated")]
    assert file.stamp not in {"", *(remote_file(MemoryFileSystem(), other).stamp for other in others)}
    assert remote_file(MemoryFileSystem(), {"name": "/run/a", "size": 7, "type": "file"}).stamp == ""


def test_folders_are_listed_or_refused_in_one_line(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order; those that are hidden are left out."""
    for name in ("b/2.json", "b/1.json", "a.json", "b/.ddprof/x.json", ".hidden", "b/deep/3.json"):
        store.pipe(f"/run/{name}", b"{}")
    found = [(file.url.rpartition("/run/")[2], file.size_bytes) for file in walk_remote("memory://run")]
    assert found == [(name, 2) for name in ("a.json", "b/1.json", "b/2.json", "b/deep/3.json")]
    break_down(monkeypatch, "ls", "", "Unable to locate credentials\nin seven places")
    assert refusal("memory://run") == "memory://run: cannot be read: Unable to locate credentials"


def test_an_unreadable_file_costs_itself_alone(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(3):
        store.pipe(f"/run/rank{rank}.json.gz", gzip.compress(kt.render(EVENTS)))
    break_down(monkeypatch, "_open", "rank1.json.gz", "connection reset by peer")
    inventory = discover(["memory://run"])
    (note,) = inventory.health
    assert len(inventory.sources) == 2
    assert note.issue.endswith("rank1.json.gz: cannot be read: connection reset by peer")
    break_down(monkeypatch, "_open", ".gz", "connection reset by peer")
    assert re.search(r"rank0.json.gz: cannot be read: connection reset .*2 more files", refusal("memory://run"))
    with pytest.raises(NoUsableInput, match=r"cannot be read: connection reset by peer"):
        read(inventory.sources[0])


ABSENT = dict.fromkeys(("s3://ddprof-no-such-bucket/run", "{bucket}/nothing"), "no such file, folder or bucket")
ABSENT["nope://x/y"] = "cannot be read: Protocol not known: nope"


@pytest.mark.parametrize(("url", "says"), ABSENT.items())
def test_what_is_not_there_is_one_line(bucket: str, url: str, says: str) -> None:
    assert refusal(url.format(bucket=bucket)).startswith(f"{url.format(bucket=bucket)}: {says}")


def test_a_bucket_without_credentials_is_one_line(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    assert refusal(bucket).startswith(f"{bucket}: cannot be read: Unable to locate credentials (the store's own")

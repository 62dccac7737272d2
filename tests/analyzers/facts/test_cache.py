"""The folder that keeps facts: whole entries of believed users, never more than its bound, nothing else touched."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import numpy as np
import pytest
from captured import sidecar_of
from fsspec.implementations.memory import MemoryFileSystem
from labelled_runs import Runs

from ddprof.analyzers.facts import cache
from ddprof.analyzers.facts.cache import LONGEST_WRITE_S, Folder, Store, decode, encode, users_folder
from ddprof.analyzers.facts.model import SCRIPT_FRAMES, TABLES, RankFacts
from ddprof.readers.admission.sniff import sniff
from ddprof.readers.format import Sample
from ddprof.tables import Table

ME = {os.getuid()}
KEYS = [f"{number:020x}" for number in range(8)]
OTHERS = ["thesis.facts", f"{KEYS[0]}.parquet", f"{KEYS[0]}.facts.bak"]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "facts"), 400)


def _entries(folder: Folder) -> list[str]:
    return sorted(os.listdir(folder.path))


def test_what_was_kept_by_a_believed_user_is_found_under_its_key_alone(folder: Folder) -> None:
    folder.save(KEYS[0], b"abc")
    assert folder.load(KEYS[0], ME) == b"abc" and folder.load(KEYS[1], ME) is None
    assert folder.load(KEYS[0], {os.getuid() + 1}) is None and _entries(folder) == [f"{KEYS[0]}.facts"]


def test_a_pipe_or_a_folder_in_its_place_is_neither_read_nor_waited_for(folder: Folder) -> None:
    os.makedirs(os.path.join(folder.path, f"{KEYS[0]}.facts"))
    os.mkfifo(os.path.join(folder.path, f"{KEYS[1]}.facts"))
    assert [folder.load(key, ME) for key in KEYS[:2]] == [None, None]


def test_a_write_that_fails_leaves_what_was_there(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: str) -> None:
        raise OSError("no space left")

    folder.save(KEYS[0], b"old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        folder.save(KEYS[0], b"new")
    assert folder.load(KEYS[0], ME) == b"old" and _entries(folder) == [f"{KEYS[0]}.facts"]


def test_who_reads_while_others_write_finds_one_whole_content(folder: Folder) -> None:
    contents = [bytes([letter]) * 100_000 for letter in b"abcd"]
    folder.save(KEYS[0], contents[0])
    with ThreadPoolExecutor(len(contents)) as pool:
        writes = [pool.submit(folder.save, KEYS[0], content) for content in contents * 20]
        read = {folder.load(KEYS[0], ME) for _ in range(200)}
    assert [write.exception() for write in writes if write.exception()] == []
    assert read <= set(contents) and _entries(folder) == [f"{KEYS[0]}.facts"]


def test_the_oldest_go_first_and_no_more_than_must(folder: Folder) -> None:
    for age_s, key in enumerate(reversed(KEYS)):
        folder.save(key, b"x" * 100)
        os.utime(os.path.join(folder.path, f"{key}.facts"), (time.time() - 100 * (len(KEYS) - age_s),) * 2)
    assert folder.load(KEYS[-1], ME) is not None  # the oldest by writing, now used
    folder.prune()
    assert _entries(folder) == sorted(f"{key}.facts" for key in (*KEYS[:3], KEYS[-1]))


def test_files_of_other_names_are_nobodys_to_remove_and_no_folder_is_made(folder: Folder) -> None:
    folder.prune()
    assert not os.path.exists(folder.path)
    os.makedirs(folder.path)
    for name in OTHERS:
        Path(folder.path, name).write_bytes(b"x" * 1000)
    folder.prune()
    assert _entries(folder) == sorted(OTHERS)


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_is_not(folder: Folder) -> None:
    os.makedirs(folder.path)
    left, written = (Path(folder.path, f".{KEYS[0]}.{16 * digit}.part") for digit in "01")
    for part in (left, written):
        part.write_bytes(b"x")
    os.utime(left, (time.time() - LONGEST_WRITE_S - 1,) * 2)
    folder.prune()
    assert _entries(folder) == [written.name]


def test_the_users_folder_is_private_below_the_stated_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert users_folder() == Folder(str(tmp_path / "ddprof" / "facts"))
    assert (tmp_path / "ddprof" / "facts").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")  # the specification has a relative one ignored; the home has one
    monkeypatch.setenv("HOME", str(tmp_path))
    assert users_folder() == Folder(str(tmp_path / ".cache" / "ddprof" / "facts"))


def test_a_folder_of_another_user_or_a_file_there_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "theirs"))
    assert users_folder() is not None
    if os.getuid() == 0:
        os.chown(tmp_path / "theirs" / "ddprof", 4711, -1)
    else:
        me = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert users_folder() is None
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ddprof").write_text("")
    assert users_folder() is None


KEY = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def facts(labelled: Runs) -> RankFacts:
    """Facts of a rank, with a sidecar and with texts in a table."""
    content = {"steps": [{"start_ns": 1, "end_ns": 2}], "dataloader": {"sampler": {"class": "S"}}, "nccl": None}
    rows = {c.name: ["été.py", ""] if c.dtype == "str" else [1, 2] for c in SCRIPT_FRAMES.columns}
    clean, frames = labelled("clean.ddp").job.ranks[0], SCRIPT_FRAMES.table(rows)
    return replace(clean, sidecar=sidecar_of(content), script_frames=frames)


def test_every_table_and_every_other_fact_survives(facts: RankFacts) -> None:
    again = decode(encode(facts, KEY), KEY)
    assert sniff(Sample(encode(facts, KEY))).format == "run_file"  # beside traces no file that is left out
    assert isinstance(again, RankFacts)
    for name, schema in TABLES.items():
        mine, theirs = getattr(facts, name), getattr(again, name)
        for column in schema.columns:
            a, b = mine[column.name], theirs[column.name]
            assert a.dtype == b.dtype, (name, column)
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (name, column)
    others = [f.name for f in fields(facts) if f.name not in TABLES]
    assert [name for name in others if getattr(facts, name) != getattr(again, name)] == []
    assert {f.name for f in fields(facts) if isinstance(getattr(facts, f.name), Table)} == set(TABLES)


def test_neither_a_flipped_bit_nor_a_part_of_a_file_nor_anything_behind_it_is_trusted(facts: RankFacts) -> None:
    kept, random = encode(facts, KEY), Random(7)
    for _ in range(300):
        flipped = bytearray(kept)
        flipped[random.randrange(len(kept))] ^= 1 << random.randrange(8)
        assert decode(bytes(flipped), KEY) is None

    lengths = [0, 1, len(kept) - 1, *(random.randrange(len(kept)) for _ in range(100))]
    assert [length for length in lengths if decode(kept[:length], KEY) is not None] == []
    assert decode(kept + b"\0", KEY) is None and decode(b"\0" + kept, KEY) is None
    assert decode(kept, KEY[::-1]) is None  # of another key


def test_what_no_file_can_hold_is_an_error_of_value(facts: RankFacts) -> None:
    for beyond in (replace(facts, path="rank\udc80.json"), replace(facts, counts={"of_events": 2**64})):
        with pytest.raises(ValueError, match=r"surrogates|serialize"):
            encode(beyond, KEY)


STORE_KEYS = [f"{number:020x}" for number in range(8)]
NOBODY: set[int] = set()  # a store tells no owner


@pytest.fixture
def memory(memory_url: str) -> Store:
    """An empty one with room for 400 bytes, in this process."""
    return Store(memory_url, 400)


@pytest.fixture(params=[("memory_url", ""), ("bucket", "/team/facts/"), ("bucket", "")], ids=["memory", "s3", "bucket"])
def store(request: pytest.FixtureRequest) -> Store:
    place, below = request.param
    return Store(request.getfixturevalue(place) + below, 400)


def _stored(store: Store) -> list[str]:
    files, path = fsspec.core.url_to_fs(store.url)
    files.invalidate_cache()
    return sorted(str(name).rpartition("/")[2] for name in files.ls(path, detail=False))


def test_what_was_kept_is_found_under_its_key_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.prune()  # nothing yet
    assert store.load(STORE_KEYS[0], NOBODY) is None
    store.save(STORE_KEYS[0], b"abc")
    assert store.load(STORE_KEYS[0], NOBODY) == b"abc" and store.load(STORE_KEYS[1], NOBODY) is None
    assert _stored(store) == [f"{STORE_KEYS[0]}.facts"]
    store.save(STORE_KEYS[0], b"later")
    assert store.load(STORE_KEYS[0], NOBODY) == b"later"
    monkeypatch.setattr(cache, "MAX_ENTRY_BYTES", 3)  # no more is read than an entry may have
    assert store.load(STORE_KEYS[0], NOBODY) == b"lat"


def test_what_was_written_first_goes_first_and_no_more_than_must(memory: Store) -> None:
    for age, key in enumerate(STORE_KEYS):
        memory.save(key, b"x" * 100)
        files, path = fsspec.core.url_to_fs(f"{memory.url}/{key}.facts")
        files.store[path].created = datetime.now(tz=timezone.utc) - timedelta(hours=age)
    memory.prune()
    assert _stored(memory) == sorted(f"{key}.facts" for key in STORE_KEYS[:4])


def test_a_bucket_keeps_its_bound_and_is_never_made(bucket: str) -> None:
    store = Store(f"{bucket}/facts", 400)
    for key in STORE_KEYS:
        store.save(key, b"x" * 100)
    store.prune()
    assert len(_stored(store)) == 4
    store = Store(f"{bucket}-of-nobody/facts")
    assert store.load(STORE_KEYS[0], NOBODY) is None
    with pytest.raises(OSError, match="bucket does not exist"):
        store.save(STORE_KEYS[0], b"a")
    store.prune()
    files, path = fsspec.core.url_to_fs(store.url)
    assert not files.exists(path.partition("/")[0])


def test_objects_of_other_names_are_nobodys_to_remove(store: Store) -> None:
    names = ["thesis.facts", f"{STORE_KEYS[0]}.parquet", f"deep/{STORE_KEYS[1]}.facts"]
    for name in names:
        with fsspec.open(f"{store.url.rstrip('/')}/{name}", "wb") as file:
            file.write(b"x" * 1000)
    store.prune()
    assert _stored(store) == sorted(["deep", *names[:2]])


class _OutOfReach(MemoryFileSystem):
    protocol = "outofreach"

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("connection reset by peer\nfor the third time")

    open = pipe_file = cat_file = ls = rm_file = _refuse


def test_what_a_driver_raises_is_an_oserror() -> None:
    fsspec.register_implementation("outofreach", _OutOfReach, clobber=True)
    store = Store("outofreach://facts")
    for act in (lambda: store.load(STORE_KEYS[0], NOBODY), lambda: store.save(STORE_KEYS[0], b"a")):
        with pytest.raises(OSError, match="connection reset"):
            act()
    store.prune()

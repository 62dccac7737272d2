"""The store that keeps facts: whole entries, never more than its bound, nothing else touched, OSErrors alone."""

from datetime import datetime, timedelta, timezone
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from ddprof.analyzers.facts.cache import store as store_module
from ddprof.analyzers.facts.cache.store import Store

KEYS = [f"{number:020x}" for number in range(8)]
NOBODY: set[int] = set()  # a store tells no owner


@pytest.fixture
def memory(memory_url: str) -> Store:
    """An empty one with room for 400 bytes, in this process."""
    return Store(memory_url, 400)


@pytest.fixture(params=[("memory_url", ""), ("bucket", "/team/facts/"), ("bucket", "")], ids=["memory", "s3", "bucket"])
def store(request: pytest.FixtureRequest) -> Store:
    place, below = request.param
    return Store(request.getfixturevalue(place) + below, 400)


def _entries(store: Store) -> list[str]:
    files, path = fsspec.core.url_to_fs(store.url)
    files.invalidate_cache()
    return sorted(str(name).rpartition("/")[2] for name in files.ls(path, detail=False))


def test_what_was_kept_is_found_under_its_key_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.prune()  # nothing yet
    assert store.load(KEYS[0], NOBODY) is None
    store.save(KEYS[0], [b"a", memoryview(b"bc")])
    assert store.load(KEYS[0], NOBODY) == b"abc" and store.load(KEYS[1], NOBODY) is None
    assert _entries(store) == [f"{KEYS[0]}.facts"]
    store.save(KEYS[0], [b"later"])
    assert store.load(KEYS[0], NOBODY) == b"later"
    monkeypatch.setattr(store_module, "MAX_ENTRY_BYTES", 3)  # no more is read than an entry may have
    assert store.load(KEYS[0], NOBODY) == b"lat"


def test_what_was_written_first_goes_first_and_no_more_than_must(memory: Store) -> None:
    for age, key in enumerate(KEYS):
        memory.save(key, [b"x" * 100])
        files, path = fsspec.core.url_to_fs(f"{memory.url}/{key}.facts")
        files.store[path].created = datetime.now(tz=timezone.utc) - timedelta(hours=age)
    memory.prune()
    assert _entries(memory) == sorted(f"{key}.facts" for key in KEYS[:4])


def test_a_bucket_keeps_its_bound_and_is_never_made(bucket: str) -> None:
    store = Store(f"{bucket}/facts", 400)
    for key in KEYS:
        store.save(key, [b"x" * 100])
    store.prune()
    assert len(_entries(store)) == 4
    store = Store(f"{bucket}-of-nobody/facts")
    assert store.load(KEYS[0], NOBODY) is None
    with pytest.raises(OSError, match="bucket does not exist"):
        store.save(KEYS[0], [b"a"])
    store.prune()
    files, path = fsspec.core.url_to_fs(store.url)
    assert not files.exists(path.partition("/")[0])


def test_objects_of_other_names_are_nobodys_to_remove(store: Store) -> None:
    names = ["thesis.facts", f"{KEYS[0]}.parquet", f"deep/{KEYS[1]}.facts"]
    for name in names:
        with fsspec.open(f"{store.url.rstrip('/')}/{name}", "wb") as file:
            file.write(b"x" * 1000)
    store.prune()
    assert _entries(store) == sorted(["deep", *names[:2]])


class _OutOfReach(MemoryFileSystem):
    protocol = "outofreach"

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("connection reset by peer\nfor the third time")

    open = pipe_file = cat_file = ls = rm_file = _refuse


def test_what_a_driver_raises_is_an_oserror() -> None:
    fsspec.register_implementation("outofreach", _OutOfReach, clobber=True)
    store = Store("outofreach://facts")
    for act in (lambda: store.load(KEYS[0], NOBODY), lambda: store.save(KEYS[0], [b"a"])):
        with pytest.raises(OSError, match="connection reset"):
            act()
    store.prune()

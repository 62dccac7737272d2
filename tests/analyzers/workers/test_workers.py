"""Workers: values of `--engine`, and the pool of processes: how many, and how they are started."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from ddprof.analyzers.workers import local
from ddprof.analyzers.workers.local import WORKER_BYTES, chunk, in_processes, is_networked, parse_engine, processes
from ddprof.errors import UsageError
from ddprof.readers import Source


@pytest.mark.parametrize(
    ("text", "is_dask", "address"),
    [
        *(("local", False, None), ("dask", True, None)),
        ("dask://scheduler:8786", True, "tcp://scheduler:8786"),
        ("dask://10.0.0.1:8786/", True, "tcp://10.0.0.1:8786"),
        ("dask://[fe80::1]:8786", True, "tcp://[fe80::1]:8786"),
        ("dask+tls://scheduler:8786", True, "tls://scheduler:8786"),
    ],
)
def test_engines(text: str, is_dask: bool, address: str | None) -> None:
    engine = parse_engine(text)
    assert (engine.text, engine.is_dask, engine.address) == (text, is_dask, address)


@pytest.mark.parametrize("text", ["", "spark", "dask://", "dask://host", "dask://:8786", "tcp://host:8786"])
def test_what_is_no_engine(text: str) -> None:
    with pytest.raises(UsageError, match="want local, dask or dask://HOST:PORT"):
        parse_engine(text)


def test_memory_bounds_the_processes() -> None:
    assert processes(8, None) == 8 and processes(8, 4 * WORKER_BYTES) == 3 and processes(8, 1) == 1


@pytest.mark.parametrize("files,size_bytes,at_once", [(1024, 50_000, 20), (1024, 5_000_000, 1), (64, 50_000, 4)])
def test_small_files_are_handed_over_several_at_a_time(files: int, size_bytes: int, at_once: int) -> None:
    assert chunk([Source(f"rank{rank}.json", "kineto", size_bytes=size_bytes) for rank in range(files)], 2) == at_once


@pytest.mark.parametrize(
    ("path", "networked"), [("/traces/rank0.json", False), ("memory://run/rank0.json", False), ("s3://b/rank0", True)]
)
def test_a_store_is_read_by_new_processes(monkeypatch: pytest.MonkeyPatch, path: str, networked: bool) -> None:
    asked: list[str] = []
    assert is_networked(path) == networked
    monkeypatch.setattr("multiprocessing.get_context", asked.append)
    monkeypatch.setattr(local, "SMALL_BYTES", 0)
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["fork", "spawn"])
    here = SimpleNamespace(map=lambda work, sources, chunksize: map(work, sources))
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", lambda workers, mp_context: nullcontext(here))
    sources = [Source(path, "kineto"), Source(path, "chrome")]
    assert list(in_processes(2, lambda source: source.format, sources)) == [(0, "kineto"), (1, "chrome")]
    assert asked == ["spawn" if networked else "fork"]

"""The map in processes of this machine, and the value of `--engine` that chooses another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from ddprof.errors import DdprofError, UsageError
from ddprof.readers import Source

if TYPE_CHECKING:
    from concurrent.futures import Executor

R = TypeVar("R")
WORKER_BYTES = 100 * 2**20  # a process that reads 250k events peaks near 100 MB (benchmarks/README.md)
CHUNK_BYTES = 1_000_000  # packed: a fifth of a second's work
CHUNKS = 8  # of each process at least, so that none works on long after the others
SMALL_BYTES = 3_000_000  # below this in all, starting processes costs more than it saves


def processes(workers: int | None, max_memory: int | None) -> int:
    """Processes that read at once: as many as asked for, else one per core, within the memory."""
    count = workers or _cores()
    if max_memory is not None:
        count = min(count, max_memory // WORKER_BYTES - 1)  # one share is the parent's
    return max(1, count)


def in_processes(count: int, work: Callable[[Source], R], sources: Sequence[Source]) -> Iterator[tuple[int, R]]:
    """The result of each source with its position, in order. Raises DdprofError where a process was killed."""
    count = min(count, len(sources))
    if count <= 1 or sum(s.size_bytes for s in sources) < SMALL_BYTES:
        yield from enumerate(map(work, sources))
        return
    from concurrent.futures.process import BrokenProcessPool  # small runs need no processes, nor what makes them

    try:
        with _pool(count, any(is_networked(source.path) for source in sources)) as pool:
            yield from enumerate(pool.map(work, sources, chunksize=chunk(sources, count)))
    except BrokenProcessPool as error:
        words = "a process that reads traces was ended from outside, as for want of memory: try fewer workers"
        raise DdprofError(words) from error


def chunk(sources: Sequence[Source], count: int) -> int:
    """Sources handed to a process at a time; single small files would cost more to hand over than to read."""
    mean_bytes = sum(source.size_bytes for source in sources) / len(sources)
    return max(1, min(int(CHUNK_BYTES // max(mean_bytes, 1)), len(sources) // (count * CHUNKS)))


def is_networked(path: str) -> bool:
    """True where reading a path uses a driver with its own threads: any URL but of this process's memory."""
    return "://" in path and not path.startswith("memory://")


def _pool(workers: int, has_threads: bool) -> Executor:
    """Forked where possible: workers then share the interpreter and its imports.

    Not where a store's driver runs threads here: their locks, forked as they are held, would never be released.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_all_start_methods, get_context

    method = "fork" if "fork" in get_all_start_methods() and not has_threads else "spawn"
    return ProcessPoolExecutor(workers, mp_context=get_context(method))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# The value of `--engine`: this machine's processes, a Dask cluster made for the analysis, or an existing one.

LOCAL, DASK = "local", "dask"
_SCHEMES = {"dask://": "tcp://", "dask+tls://": "tls://"}


class EngineName(Struct, frozen=True):
    """`text` as it was given; `address`: the scheduler's, as Dask writes it, None where there is none yet."""

    text: str
    is_dask: bool = False
    address: str | None = None


def parse_engine(text: str) -> EngineName:
    """The engine of that name. Raises UsageError."""
    if text in (LOCAL, DASK):
        return EngineName(text, text == DASK)
    for ours, theirs in _SCHEMES.items():
        host, sign, port = text.removeprefix(ours).rstrip("/").rpartition(":")
        if text.startswith(ours) and host and sign and port.isdigit():
            return EngineName(text, True, f"{theirs}{host}:{port}")
    raise UsageError(f"--engine {text}: want local, dask or dask://HOST:PORT")

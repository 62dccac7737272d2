"""The map on a Dask cluster, whose scheduler alone assigns, retries and recovers tasks.

Its workers open the files themselves: they need ddprof of this version, and paths or URLs that lead to the same files.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from ddprof._version import __version__
from ddprof.analyzers.workers.local import EngineName
from ddprof.errors import DdprofError, UsageError
from ddprof.readers import Source

TASK = "ddprof-read"  # the group of these tasks in Dask's dashboard
RETRIES = 2  # of a rank whose file could not be reached: what one worker cannot reach another may
FIRST_WORKER_S = 300  # an adaptive cluster starts its first worker when there is work: a pod or a batch job


class Mapped(Protocol):
    """Result of a rank's task; `was_unreachable`: another attempt, on another machine, may succeed."""

    @property
    def error(self) -> str | None:
        """Reason why there are no facts, in one line; None with facts."""

    @property
    def was_unreachable(self) -> bool:
        """True where the file could not be opened, whatever its content."""


M = TypeVar("M", bound=Mapped)


class ConnectedCluster(Struct, frozen=True):
    """A connected cluster. `link`: its dashboard."""

    engine: EngineName
    link: str
    _dask: Any
    _client: Any

    def results(
        self, work: Callable[[Source], M], sources: Sequence[Source], failed: Callable[[Source, str], M]
    ) -> Iterator[tuple[int, M]]:
        """The result of each source with its position, as they arrive; `failed` makes the result of a failed task.

        Raises DdprofError where the cluster has no worker, or is gone. Whoever stops asking ends the tasks.
        """
        there = partial(_there, work, __version__)
        futures = self._client.map(there, sources, key=TASK, retries=RETRIES, pure=False)
        try:
            self._wait_for_worker()
            places = {future.key: at for at, future in enumerate(futures)}
            for future in self._dask.as_completed(futures, loop=self._client.loop):
                at = places[future.key]
                yield at, self._result(future, sources[at], failed)
                future.release()  # the cluster need not keep it
        finally:
            left = [future for future in futures if not future.done()]
            if left:
                self._client.cancel(left)

    def _wait_for_worker(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=FIRST_WORKER_S)
        except TimeoutError as error:
            raise DdprofError(f"{self.engine.text}: the cluster has no worker ({self.link})") from error

    def _result(self, future: Any, source: Source, failed: Callable[[Source, str], M]) -> M:
        """The result of a task; recomputed where its worker has ended since."""
        error = future.exception()
        if error is None:
            result: M = future.result()
            return result
        if isinstance(error, self._dask.CancelledError):
            raise DdprofError(f"{self.engine.text}: the cluster went away before all ranks were read")
        if isinstance(error, self._dask.KilledWorker):
            ended = f"{error.allowed_failures + 1} Dask workers ended while they read it, as for want of memory"
            return failed(source, f"{source.label}: {ended}")
        if isinstance(error, _Unreached):
            return failed(source, str(error))
        first = (str(error) or "no reason given").splitlines()[0]
        return failed(source, f"{source.label}: failed on a Dask worker: {type(error).__name__}: {first}")


class _Unreached(Exception):
    """A file that a worker could not reach, or a worker that could not read it."""


@contextmanager
def connected(engine: EngineName, workers: int) -> Iterator[ConnectedCluster]:
    """The cluster of that name; one made here has `workers` workers. Raises UsageError where there is none."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError(f"--engine {engine.text} needs Dask: pip install 'ddprof[dask]'") from error
    with _client(distributed, engine, workers) as client:
        _require_one_version(engine, client.get_versions(packages=["ddprof"]))
        yield ConnectedCluster(engine, client.dashboard_link, distributed, client)


@contextmanager
def _client(dask: Any, engine: EngineName, workers: int) -> Iterator[Any]:
    if engine.address is None:
        with _made_here(dask, workers) as made, dask.Client(made, set_as_default=False) as client:
            yield client
        return
    try:
        client = dask.Client(engine.address, set_as_default=False)
    except (OSError, TimeoutError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageError(f"{engine.text}: no Dask scheduler answers there ({first})") from error
    with client:
        yield client


@contextmanager
def _made_here(dask: Any, workers: int) -> Iterator[Any]:
    """A cluster of this machine's processes, on any free port: one that is taken costs a warning."""
    how = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    # Its processes inherit the mask: Ctrl-C is for this process, which ends them, also while they start. The tracker
    # would lift the mask as it starts.
    from multiprocessing import resource_tracker  # 3 ms that a local analysis need not wait for

    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with ExitStack() as masked:
        masked.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        with dask.LocalCluster(n_workers=workers, **how) as made:
            masked.close()
            yield made


def _require_one_version(engine: EngineName, versions: dict[str, Any]) -> None:
    """Raises UsageError, naming machines, where the scheduler or a worker has another ddprof than this process."""
    nodes = {"the scheduler": versions["scheduler"]} | versions["workers"]
    other = {name: node["packages"].get("ddprof") for name, node in nodes.items()}
    other = {name: version for name, version in other.items() if version != __version__}
    if other:
        name, version = next(iter(other.items()))
        has = f"has {version}" if version else "has none"
        more = f", and {len(other) - 1} more differ" if len(other) > 1 else ""
        raise UsageError(f"{engine.text}: ddprof is {__version__} here, {name} {has}{more}: install one version on all")


def _there(work: Callable[[Source], M], version: str, source: Source) -> M:
    """The result of a task on a worker, or _Unreached, after which Dask tries again."""
    host = socket.gethostname()
    if version != __version__:  # of a worker that came later
        raise _Unreached(f"{source.label}: the Dask worker on {host} has ddprof {__version__}, this is {version}")
    if "://" not in source.path and not os.path.exists(source.path):
        missing = f"not on {host}, where a Dask worker was to read it: name a shared folder or a URL"
        raise _Unreached(f"{source.label}: {missing}")
    result = work(source)
    if result.was_unreachable:
        raise _Unreached(result.error or source.label)
    return result

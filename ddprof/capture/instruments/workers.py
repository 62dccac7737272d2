"""Fetches of batches with their times and costs, recorded in the process that makes them.

A DataLoader worker appends one line per batch to its rank's `.workers.jsonl`, by one `write` of less than a page to an
O_APPEND descriptor, so that workers share the file without a lock. The process that asked for the worker tells its
rank, under fork, spawn and forkserver alike. A loader without workers fetches in the training process; its recent
fetches go to the sidecar.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
import threading
import time
from functools import partial
from multiprocessing import parent_process, util
from pathlib import Path
from types import ModuleType
from typing import Any

from ddprof.capture.files.layout import SIDECAR_SUFFIX, STACKS_SUFFIX, WORKERS_SUFFIX, host_label
from ddprof.capture.files.step import REST
from ddprof.capture.files.storage import open_to_append
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.stacks.rate import WORKER_HZ
from ddprof.capture.stacks.sampler import StackSampler
from ddprof.capture.stacks.totals import NO_STEPS

_MAX_LINES = 20_000  # per worker: about 2 MB
# In the training process, reading the CPU time twice takes longer than all else that is done for a step. So after the
# first fetches only every seventh is timed (a prime: a data set whose every fourth batch is slow shows in the sample).
_ALL_FETCHES = 64
_SAMPLED_FETCHES = 7
_WATCHED = 4  # fetches whose random numbers are looked for: what augments draws for every sample
_CLASSES = ("_MapDatasetFetcher", "_IterableDatasetFetcher")
MAX_FILES = 64  # of sampled workers, per rank: a loader that is made again for every epoch starts new workers each time
_MAX_COUNTERS = 128  # bytes: three numbers
_PRIORITY = 20  # before multiprocessing joins its own helper threads


class LoaderWorkers(Instrumentor):
    """Times `fetch` of torch's fetchers, and the collating inside it."""

    def _install(self, module: ModuleType) -> None:
        self._file: int | None = None
        self._owner = 0
        self._lines = 0
        self._collate_ns = 0
        self._fetched = 0
        self._waits: int | None = None
        self._timing = True
        self._draws: bool | None = None  # of the training process: random numbers, while it made a batch
        source: Any = sys.modules["torch.utils.data._utils.fetch"]
        worker: Any = sys.modules["torch.utils.data._utils.worker"]
        for name in _CLASSES:
            cls = getattr(source, name)
            self.patches.add(cls, "fetch", self._timed(cls.fetch, worker.get_worker_info))
        base: Any = source._BaseDatasetFetcher
        self.patches.add(base, "__init__", self._with_timed_collate(base.__init__))

    def _with_timed_collate(self, original: Any) -> Any:
        def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:
            original(fetcher, *args, **kwargs)
            collate = getattr(fetcher, "collate_fn", None)
            if collate is not None:
                fetcher.collate_fn = self._timed_collate(collate)

        return __init__

    def _timed_collate(self, collate: Any) -> Any:
        def timed(data: Any) -> Any:
            if not self._timing:
                return collate(data)
            started_ns = time.perf_counter_ns()
            try:
                return collate(data)
            finally:
                self._collate_ns = time.perf_counter_ns() - started_ns

        return timed

    def _timed(self, original: Any, get_worker_info: Any) -> Any:
        guarded = self.hub.guard.wrap
        book, begins, waits = guarded(self._book), guarded(self._begins), guarded(self._waited_ns)
        states, drew = guarded(_random_states), guarded(self._drew)

        def fetch(fetcher: Any, possibly_batched_index: Any) -> Any:
            """The fetcher's own fetch, timed and recorded."""
            info = get_worker_info()
            if info is not None and self._owner != os.getpid():
                begins(info)
            self._fetched += 1
            self._timing = info is not None or self._fetched <= _ALL_FETCHES or self._fetched % _SAMPLED_FETCHES == 0
            if not self._timing:
                return original(fetcher, possibly_batched_index)
            self._collate_ns = 0
            waited_ns = None if info is None else waits()
            drawn = states() if info is None and self._fetched <= _WATCHED else None
            cpu_ns = time.process_time_ns()  # its threads included: decoders bring their own
            started_ns = time.time_ns()
            try:
                return original(fetcher, possibly_batched_index)
            finally:
                duration_ns = time.time_ns() - started_ns
                cost = (started_ns, duration_ns, time.process_time_ns() - cpu_ns, self._collate_ns)
                book(info, cost, possibly_batched_index, waited_ns)
                if drawn is not None:
                    drew(drawn)

        return fetch

    def _drew(self, before: list[Any]) -> None:
        self._draws = bool(self._draws) or _random_states() != before

    def recorded(self) -> dict[str, Any]:
        """The sidecar key of random numbers that the training process drew for its first batches."""
        return {"fetch_draws": self._draws}

    def _waited_ns(self) -> int | None:
        """Time that this thread has been ready to run without a CPU so far; None where the kernel does not count it."""
        return None if self._waits is None else int(os.pread(self._waits, _MAX_COUNTERS, 0).split()[1])

    def _book(self, info: Any, cost: tuple[int, int, int, int], indices: Any, waited_ns: int | None) -> None:
        samples = len(indices) if isinstance(indices, (list, tuple)) else 1
        if info is None:
            self.hub.journal.fetches.append([*cost, samples])
            return
        if self._lines >= _MAX_LINES:
            return
        if self._file is None:
            self._begins(info)
            if self._file is None:
                return
        self._lines += 1
        started_ns, duration_ns, cpu_ns, collate_ns = cost
        line = {"worker": info.id, "start_ns": started_ns, "dur_ns": duration_ns, "cpu_ns": cpu_ns}
        line |= {"collate_ns": collate_ns, "samples": samples}
        if waited_ns is not None:
            line["waited_ns"] = (self._waited_ns() or 0) - waited_ns
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _begins(self, info: Any) -> None:
        """Prepare a worker's files, named after its rank; none while its parent is not a rank yet (a single process
        before its first optimizer step).
        """
        if self._owner != os.getpid():
            self._owner, self._file, self._lines, self._waits = os.getpid(), None, 0, _run_delays()
        asked = parent_process()  # under forkserver, the parent is the server
        rank_pid = os.getppid() if asked is None else asked.pid
        for sidecar in self.hub.folder.glob(f"rank*.{host_label()}.{rank_pid}.*{SIDECAR_SUFFIX}"):
            stem = sidecar.with_name(sidecar.name.removesuffix(SIDECAR_SUFFIX))
            self._file = open_to_append(stem.with_name(stem.name + WORKERS_SUFFIX))
            if self.hub.config.stacks:
                self.hub.guard.attempt("stacks", partial(self._sample, stem, info.id))
            return

    def _sample(self, stem: Path, worker: int) -> None:
        """Start sampling the main thread of this process, `worker` of the rank whose files begin with `stem`, unless
        there are too many workers' files. Raises OSError.
        """
        if len(list(stem.parent.glob(f"{stem.name}.worker*{STACKS_SUFFIX}"))) >= MAX_FILES:
            return
        guard, note = self.hub.guard, self.hub.journal.note
        sampler = StackSampler(_OneThread(), lambda: guard.enabled, note, WORKER_HZ, with_source=True)
        path = stem.with_name(f"{stem.name}.worker{worker}.{os.getpid()}{STACKS_SUFFIX}")
        sampler.start(path, {"worker": worker, "pid": os.getpid()})
        util.Finalize(None, sampler.stop, args=("exit",), exitpriority=_PRIORITY)  # workers leave by os._exit


def _random_states() -> list[Any]:
    """States of the process's generators of Python, torch and NumPy."""
    states = [random.getstate(), sys.modules["torch"].default_generator.get_state().tolist()]
    numpy: Any = sys.modules.get("numpy.random")
    return states if numpy is None else [*states, pickle.dumps(numpy.get_state())]


def _run_delays() -> int | None:
    """Descriptor of the kernel's counters of this thread (capture/instruments/cpu_waits.py); None without them."""
    try:
        file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        if len(os.pread(file, _MAX_COUNTERS, 0).split()) > 1:
            return file
        os.close(file)
    except OSError:  # another system, or a kernel that does not count
        pass
    return None


class _OneThread:
    """Phase timers of a process that trains nothing: its main thread is the one of interest."""

    thread, phase, index = 0, REST, NO_STEPS

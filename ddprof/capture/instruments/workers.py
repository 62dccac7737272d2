"""DataLoader workers: when each batch was fetched, seen from inside the worker.

A worker appends one line per batch to its rank's `.workers.jsonl`; one `write` of less than a page to an O_APPEND
descriptor, so that workers share the file without a lock. The rank is found by the worker's parent process: fork and
spawn alike.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.layout import SIDECAR_SUFFIX, WORKERS_SUFFIX, host_label

_MAX_LINES = 20_000  # per worker: about 2 MB
_CLASSES = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class LoaderWorkers(Instrumentor):
    """Times `fetch` of torch's fetchers, in worker processes only."""

    def _install(self, module: ModuleType) -> None:
        self._file: int | None = None
        self._owner = 0
        self._lines = 0
        source: Any = sys.modules["torch.utils.data._utils.fetch"]
        worker: Any = sys.modules["torch.utils.data._utils.worker"]
        for name in _CLASSES:
            cls = getattr(source, name)
            self.patches.add(cls, "fetch", self._timed(cls.fetch, worker.get_worker_info))

    def _timed(self, original: Any, get_worker_info: Any) -> Any:
        book = self.session.guard.wrap(self._book)

        def fetch(fetcher: Any, possibly_batched_index: Any) -> Any:
            info = get_worker_info()
            if info is None:
                return original(fetcher, possibly_batched_index)
            started_ns = time.time_ns()
            try:
                return original(fetcher, possibly_batched_index)
            finally:
                book(info.id, started_ns, time.time_ns(), possibly_batched_index)

        return fetch

    def _book(self, worker: int, started_ns: int, ended_ns: int, indices: Any) -> None:
        if self._owner != os.getpid():
            self._owner, self._file, self._lines = os.getpid(), None, 0
        if self._lines >= _MAX_LINES:
            return
        if self._file is None:
            self._file = self._open()
            if self._file is None:
                return  # the parent is no rank yet: a single process before its first optimizer step
        self._lines += 1
        samples = len(indices) if isinstance(indices, (list, tuple)) else 1
        line = {"worker": worker, "start_ns": started_ns, "dur_ns": ended_ns - started_ns, "samples": samples}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _open(self) -> int | None:
        folder = Path(self.session.config.run_dir)
        for sidecar in folder.glob(f"rank*.{host_label()}.{os.getppid()}.*{SIDECAR_SUFFIX}"):
            path = sidecar.with_name(sidecar.name.removesuffix(SIDECAR_SUFFIX) + WORKERS_SUFFIX)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        return None

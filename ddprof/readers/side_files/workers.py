"""DataLoader workers' fetches (`.workers.jsonl` beside a sidecar): a summary for the rules, and each fetch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import numpy as np

from ddprof.model import HealthNote
from ddprof.readers.files.opening import UNREADABLE, one_line
from ddprof.readers.side_files.lenient import read_lines
from ddprof.sidecar import Fetch, FetchSpan, Sidecar, TimedFetches
from ddprof.tables import NULL, Array

_LINE = msgspec.json.Decoder(Fetch)
MAX_RECORDS_BYTES = 128 << 20  # capture keeps 20,000 fetches of about 100 bytes for each worker: those of 64 workers
QUANTILES = np.arange(0.025, 1.0, 0.05)  # twenty equal parts, each by its middle: enough for a mean and a tail
MAX_SPANS = 1024  # fetches of a rank that are kept one by one: enough to tell whether they come in turn
IN_PROCESS = -1  # stands for the training process where the loader has no workers


def read_fetches(paths: Sequence[str], sidecar: Sidecar) -> tuple[Array, list[HealthNote]]:
    """One row per fetched batch: worker, start_ns, dur_ns, cpu_ns, collate_ns, samples, and the time without a CPU
    (waited_ns, NULL where not recorded); int64, shape (fetches, 7).

    A line that cannot be read (a worker died while writing it) costs a note, not the file.
    """
    rows = array("q", (number for fetch in sidecar.fetches for number in _row(fetch)))
    notes = [note for path in paths for note in _read_lines(path, rows)]
    return np.frombuffer(rows, np.int64).reshape(-1, 7), notes


def _read_lines(path: str, rows: array[int]) -> list[HealthNote]:
    """Append the fetches of a workers' file; returns notes on the lines left out."""
    effect = "those fetches are missing from the loader's cost"
    try:
        return read_lines(path, lambda line: rows.extend(_row(_LINE.decode(line))), MAX_RECORDS_BYTES, effect)
    except UNREADABLE as error:
        return [HealthNote(f"{path}: cannot be read: {one_line(error)}", effect)]


def _row(fetch: Fetch) -> tuple[int, ...]:
    worker = IN_PROCESS if fetch.worker is None else fetch.worker
    waited_ns = NULL if fetch.waited_ns is None else fetch.waited_ns
    return worker, fetch.start_ns, fetch.dur_ns, fetch.cpu_ns, fetch.collate_ns, fetch.samples, waited_ns


def summary(fetches: Array) -> TimedFetches | None:
    """Cost of a batch over all fetches except each worker's first, which includes its start. None without fetches.

    `cpu_ns` 0 throughout means that the file was written before CPU time was recorded.
    """
    if not len(fetches):
        return None
    ordered = fetches[np.argsort(fetches[:, 1], kind="stable")]
    _, first = np.unique(ordered[:, 0], return_index=True)
    warm = np.delete(ordered, first, axis=0)
    used = warm if len(warm) else ordered
    dur, cpu, collate, waited = (used[:, at] for at in (2, 3, 4, 6))
    workers = np.unique(ordered[:, 0])
    return TimedFetches(
        workers=0 if workers.max() == IN_PROCESS else int((workers != IN_PROCESS).sum()),
        fetch_ns=int(np.median(dur)),
        fetch_quantiles_ns=tuple(np.quantile(dur, QUANTILES).astype(np.int64).tolist()),
        samples=int(np.median(used[:, 5])),
        cpu_ns=int(np.median(cpu)) if cpu.any() else None,
        collate_ns=int(np.median(collate)) if cpu.any() else None,
        waited_ns=_typical_wait_ns(dur, waited) if (waited != NULL).all() else None,
        spans=tuple(FetchSpan(*row) for row in used[used[:, 0] != IN_PROCESS][:MAX_SPANS, :3].tolist()),
    )


def _typical_wait_ns(dur_ns: Array, waited_ns: Array) -> int:
    """Median time of a batch x the share of all their time without a CPU: few batches wait, and those for long."""
    return int(np.median(dur_ns) * waited_ns.sum() / max(int(dur_ns.sum()), 1))

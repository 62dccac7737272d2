"""When the ranks of a running job last closed a step, read from their step rings at next to no cost."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ddprof.capture.files.layout import RING_SUFFIX
from ddprof.capture.files.ring import HEADER_BYTES, MAGIC, read_ring
from ddprof.capture.files.storage import names_in
from ddprof.outside.regular_files import read_bounded

_RECENT_STEPS = 64
_MAX_BYTES = 16 << 20
_WRITTEN = struct.Struct("<q72x")  # of a record of the ring: how many were written, this one included


@dataclass(frozen=True)
class Progress:
    """`written` steps by all ranks together; `usual_ns`: the median of the rank with the longest steps, None before the
    second step; `since_ns`: when the last step of any rank ended, or the last rank began."""

    written: int
    usual_ns: int | None
    since_ns: int


def steps_written(folder: Path) -> tuple[int, int]:
    """How many steps all ranks have closed, one pass over the numbers of their records, and how many ranks began."""
    total = ranks = 0
    for path in names_in(folder, RING_SUFFIX):
        try:
            data = read_bounded(path, _MAX_BYTES)
        except OSError:
            continue
        records = data[HEADER_BYTES:]
        whole = len(records) // _WRITTEN.size * _WRITTEN.size
        if data[: len(MAGIC)] == MAGIC:
            ranks += 1
            total += max((number for (number,) in _WRITTEN.iter_unpack(records[:whole])), default=0)
    return total, ranks


def progress(folder: Path) -> Progress | None:
    """The same with times; None where no rank runs."""
    written, usual, since = 0, [], []
    for path in names_in(folder, RING_SUFFIX):
        try:
            ring = read_ring(path, _RECENT_STEPS)
        except (OSError, ValueError):
            continue
        written += ring.written
        lengths = [step.end_ns - step.start_ns for step in ring.steps]
        usual += [int(median(lengths))] if len(lengths) > 1 else []
        since += [ring.steps[-1].end_ns] if ring.steps else [ring.started_ns or 0]
    return Progress(written, max(usual, default=None), max(since)) if since else None

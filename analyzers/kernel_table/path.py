"""How long each operation of a rank is on the critical path."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.operations.model import RankWork
from ddprof.analyzers.facts.operations.pieces import held
from ddprof.analyzers.job.model import JobFacts
from ddprof.causes import CAUSE_CODE
from ddprof.tables import NULL, Array, Table


def path_length_ns(path: Table) -> int:
    """Length of CRITICAL; its pieces do not overlap."""
    return int((path["end_ns"] - path["start_ns"]).sum())


def on_path_ns(job: JobFacts, path: Table, position: int, work: RankWork) -> Array:
    """Nanoseconds on CRITICAL, shape (operations,). The path runs along streams; on a CPU rank along its host."""
    operations = work.operations
    found = np.zeros(len(operations), np.int64)
    mine = path.take(path["rank"] == position)
    shift = job.clock.offset_ns(position)
    start, end = mine["start_ns"] + shift, mine["end_ns"] + shift
    for track in np.unique(mine["track"]).tolist():
        here = mine["track"] == track
        if track == NULL:
            here &= mine["cause"] == CAUSE_CODE["compute"]
            pieces = *work.busy.bounds, work.busy["operation"]
        else:
            pieces = held(operations, np.flatnonzero(operations["track"] == track))
        lo, hi, piece, _ = intervals.intersect_rows(pieces[:2], intervals.union(start[here], end[here]))
        np.add.at(found, pieces[2][piece], hi - lo)
    return found

"""Where the events of a rank's launching threads begin and end, in one sequence.

Of several launching threads one works at a time (forward on the training thread, backward on autograd's), so their
bounds are one sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, among, of_kinds

# A thread that sleeps and is woken, or that reads a page from a solid-state disk, is away for about 100 us; a launch
# takes about 5. Shorter stops are the scatter of ordinary calls.
MIN_STOP_NS = 100_000
CALLS = (Kind.CPU_OP, Kind.RUNTIME)  # compiled code: what lies between its bounds does not depend on a script
_HOST = (*CALLS, Kind.ANNOTATION, Kind.PYTHON)


@dataclass(frozen=True)
class HostBounds:
    """Starts and ends of host events in order. `rows`: the events, rows of the trace, by start."""

    rows: Array
    at_ns: Array  # (bounds,)
    owner: Array  # (bounds,), row of the event that begins or ends
    begins: Array  # (bounds,), bool: it begins

    @property
    def stops(self) -> Array:
        """Bounds after which nothing begins or ends for MIN_STOP_NS; indices."""
        return np.flatnonzero(np.diff(self.at_ns) >= MIN_STOP_NS)


def host_bounds(trace: RankTrace, threads: Array) -> HostBounds:
    """Bounds of the events of some threads (`threads`: host tracks)."""
    events = trace.events
    rows = np.flatnonzero(of_kinds(events["kind"], _HOST))
    rows = rows[among(events["track"][rows], threads) & (events["dur_ns"][rows] >= 0)]
    start = events["ts_ns"][rows]
    at_ns = np.concatenate((start, start + events["dur_ns"][rows]))
    order = np.argsort(at_ns, kind="stable")
    return HostBounds(rows, at_ns[order], np.concatenate((rows, rows))[order], order < len(rows))

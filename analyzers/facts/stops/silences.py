"""When a host does nothing that is recorded: no call is open, and nothing begins or ends.

What it does then, the trace does not say: Python between calls, a lock, or a wait for another rank. Ranges and Python
frames may be open around a silence; a call that is open is what the host does.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import SILENCES
from ddprof.analyzers.facts.stops.bounds import CALLS, HostBounds
from ddprof.model import RankTrace
from ddprof.tables import Table, of_kinds


def host_silences(trace: RankTrace, bounds: HostBounds, spans: Table) -> Table:
    """SILENCES, by start, without what `spans` (HOST_SPANS) name: fetching, saving, collecting."""
    stops = bounds.stops
    if not len(stops):
        return SILENCES.empty()
    is_call = of_kinds(trace.events["kind"], CALLS)[bounds.owner]
    is_open = np.cumsum(np.where(is_call, np.where(bounds.begins, 1, -1), 0))
    silent = stops[is_open[stops] == 0]
    start, end = bounds.at_ns[silent], bounds.at_ns[silent + 1]
    named = intervals.overlap(intervals.union(*spans.bounds), start, end) > 0
    return SILENCES.table({"start_ns": start[~named], "end_ns": end[~named]})

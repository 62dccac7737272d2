"""Blocking calls that synchronise ranks: barriers, and collectives of Python objects.

Both block the host until every rank has come. An object is pickled and sent as bytes, after a collective for its size,
and read back from the device (`torch.distributed.all_gather_object`, notes of its documentation).
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import MEETINGS, RankFacts
from ddprof.analyzers.facts.names import OP_CODE, matches
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, among, of_kinds

MEETING_CALLS = (
    *("barrier", "monitored_barrier", "all_gather_object", "gather_object"),
    *("broadcast_object_list", "scatter_object_list"),
)
# The ranges that capture leaves, and torch's operator.
_MEETING = re.compile(rf"^(?:ddprof::collective\.|c10d::)({'|'.join(MEETING_CALLS)})$")


def meeting_calls(trace: RankTrace, threads: Array) -> Table:
    """MEETINGS of the training threads (`threads`: host tracks), by start; outermost calls only."""
    events = trace.events
    named = matches(_MEETING, trace.strings)
    if not named.any():
        return MEETINGS.empty()
    kinds = (Kind.ANNOTATION, Kind.CPU_OP)
    rows = np.flatnonzero(named[events["name"]] & of_kinds(events["kind"], kinds) & among(events["track"], threads))
    start = events["ts_ns"][rows]
    end = start + events["dur_ns"][rows]
    order = np.lexsort((-end, start))
    rows, start, end = rows[order], start[order], end[order]
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1])) if len(rows) else end
    outermost = start >= reach
    columns = {
        "start_ns": start[outermost],
        "end_ns": end[outermost],
        "thread": events["track"][rows[outermost]],
        "name": events["name"][rows[outermost]],
    }
    return MEETINGS.table(columns)


def called_name(event: str) -> str:
    """The torch.distributed function behind an event of MEETINGS."""
    match = _MEETING.match(event)
    return match.group(1) if match else event


def is_meeting(facts: RankFacts) -> Array:
    """Mask of communications that are barriers or part of a collective of objects; shape (comms,)."""
    comms = facts.comms
    spans = intervals.union(*facts.meetings.bounds)
    return np.asarray((comms["op"] == OP_CODE["barrier"]) | intervals.contains(spans, comms["launch_ns"]))

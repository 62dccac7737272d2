"""Blocking calls that synchronise ranks: barriers, and collectives of Python objects.

Both block the host until every rank has come. An object is pickled and sent as bytes, after a collective for its size,
and read back from the device (`torch.distributed.all_gather_object`, notes of its documentation).
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.events import on_threads, rows_of
from ddprof.analyzers.facts.model import MEETINGS, RankFacts
from ddprof.analyzers.facts.names import OP_CODE, matches
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table

MEETING_CALLS = (
    *("barrier", "monitored_barrier", "all_gather_object", "gather_object"),
    *("broadcast_object_list", "scatter_object_list"),
)
# The ranges that capture leaves, and torch's operator.
_MEETING = re.compile(rf"^(?:ddprof::collective\.|c10d::)({'|'.join(MEETING_CALLS)})$")


def meeting_calls(trace: RankTrace, threads: Array) -> Table:
    """MEETINGS of the training threads (`threads`: host tracks), by start; outermost calls only."""
    named = matches(_MEETING, trace.strings)
    rows = np.union1d(*(rows_of(trace, kind, named, threads) for kind in (Kind.ANNOTATION, Kind.CPU_OP)))
    meetings = MEETINGS.table(on_threads(trace.events, rows))
    return meetings.take(intervals.outermost(*meetings.bounds))


def called_name(event: str) -> str:
    """The torch.distributed function behind an event of MEETINGS."""
    match = _MEETING.match(event)
    return match.group(1) if match else event


def is_meeting(facts: RankFacts) -> Array:
    """Mask of communications that are barriers or part of a collective of objects; shape (comms,)."""
    comms = facts.comms
    spans = intervals.union(*facts.meetings.bounds)
    return np.asarray((comms["op"] == OP_CODE["barrier"]) | intervals.contains(spans, comms["launch_ns"]))

"""Messages between CPU ranks: the peer of each send and receive, and the time it blocked its thread.

An operator of c10d starts the transfer and returns. The backend's range ("gloo:send") lasts until the work object has
been waited for, which may be long after the message arrived. So a message holds its rank during the call, and from the
last thing that its thread did before the range ended to that end.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import MESSAGES, NO_STRING
from ddprof.analyzers.facts.names import OP_CODE, PIPELINE_GROUP, POINT_TO_POINT
from ddprof.intervals import Intervals
from ddprof.model import ProcessGroup, RankTrace
from ddprof.tables import NULL, Array, Table


def cpu_messages(trace: RankTrace, comms: Table, calls: Array) -> tuple[Table, Table]:
    """COMMS with the groups of messages, and MESSAGES.

    `calls`: event row of each communication's call, -1 where unknown. A call with an unknown peer (receive from any
    rank, inputs not recorded) gives no message.
    """
    rows = np.flatnonzero(np.isin(comms["op"], POINT_TO_POINT))
    table = trace.message_calls
    at = np.searchsorted(table["row"], calls[rows])
    is_recorded = at < len(table)
    is_recorded[is_recorded] = table["row"][at[is_recorded]] == calls[rows][is_recorded]
    rows, at = rows[is_recorded], at[is_recorded]
    peer = table["peer"][at]
    group = _group_of(trace, peer)
    column = comms["group"].copy()
    column[rows] = group
    return comms.replace(group=column), MESSAGES.table(
        {
            "comm": rows,
            "is_send": comms["op"][rows] == OP_CODE["send"],
            "peer": _as_ranks(peer, trace.process_groups[group].ranks if group != NO_STRING else ()),
            "group": np.full(len(rows), group),
            "size_bytes": comms["size_bytes"][rows],
            "tag": table["tag"][at],
            "called_ns": np.full(len(rows), NULL),
            "is_lost": np.zeros(len(rows), bool),
        }
    )


def _group_of(trace: RankTrace, peer: Array) -> int:
    """The process group of the messages; NO_STRING for the world.

    Calls do not name it: it is the group that holds this rank and all peers; among several, the one named for
    pipelines.
    """
    needed = int(peer.max(initial=-1)) + 1
    groups = [g for g, group in enumerate(trace.process_groups) if _may_carry(group, trace.identity.rank, needed)]
    if len(groups) > 1:
        named = [g for g in groups if PIPELINE_GROUP.search(_text(trace.process_groups[g]))]
        groups = named or [g for g in groups if len(trace.process_groups[g].ranks) == trace.identity.world_size]
    return groups[0] if len(groups) == 1 else NO_STRING


def _may_carry(group: ProcessGroup, me: int | None, needed: int) -> bool:
    return me in group.ranks and len(group.ranks) >= max(needed, 2)


def _text(group: ProcessGroup) -> str:
    return f"{group.name} {group.description}"


def _as_ranks(place: Array, members: tuple[int, ...]) -> Array:
    """World ranks of positions in a group; unchanged where the group's members are unknown."""
    if not members:
        return place
    is_known = place != NULL
    result = place.copy()
    result[is_known] = np.array(members, np.int64)[place[is_known]]
    return result


def holding(comms: Table, work: Intervals) -> tuple[Table, Array]:
    """COMMS with the stretches in which each communication blocks its rank, and the row of `comms` of each stretch.

    A collective blocks throughout. A message blocks during its call, and from the last operator (`work`) or message
    call before its end to that end.
    """
    message = np.isin(comms["op"], POINT_TO_POINT) & (comms["launch_ns"] != NULL)
    rows = np.flatnonzero(message)
    start, end = comms["start_ns"].copy(), comms["end_ns"]
    called = np.minimum(comms["launch_end_ns"][rows], end[rows])
    start[rows] = np.maximum.reduce(
        (
            start[rows],
            _last_before(np.sort(comms["launch_ns"][rows]), end[rows]),
            _idle_since(work, end[rows]),
        )
    )
    of = np.concatenate((np.arange(len(comms)), rows))
    return comms.take(of).replace(
        start_ns=np.concatenate((start, comms["start_ns"][rows])), end_ns=np.concatenate((end, called))
    ), of


def _last_before(instants: Array, at_ns: Array) -> Array:
    """The last of the sorted instants at or before each of `at_ns`; NULL where there is none."""
    index = np.searchsorted(instants, at_ns, side="right") - 1
    return np.where(index >= 0, instants[np.maximum(index, 0)] if len(instants) else NULL, NULL)


def _idle_since(work: Intervals, at_ns: Array) -> Array:
    """The time since when no `work` has run, for each instant; the instant itself during work."""
    since = _last_before(work[1], at_ns)
    begun = _last_before(work[0], at_ns - 1)
    return np.where(begun > since, at_ns, since)

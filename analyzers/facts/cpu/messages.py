"""Messages between CPU ranks: the peer of each send and receive, and the time it blocked its thread.

An operator of c10d starts the transfer and returns. The backend's range ("gloo:send") lasts until the work object has
been waited for, which may be long after the message arrived. So a message holds its rank during the call, and from the
last thing that its thread did before the range ended to that end.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.device import lookup
from ddprof.analyzers.facts.model import MESSAGES, NO_STRING
from ddprof.analyzers.facts.names import OP_CODE, PIPELINE_GROUP, POINT_TO_POINT
from ddprof.intervals import Intervals
from ddprof.model import RankTrace
from ddprof.tables import NULL, Array, Table


def cpu_messages(trace: RankTrace, comms: Table, calls: Array) -> tuple[Table, Table]:
    """COMMS with the groups of messages, and MESSAGES.

    `calls`: event row of each communication's call, -1 where unknown. A call with an unknown peer (receive from any
    rank, inputs not recorded) gives no message.
    """
    rows = np.flatnonzero(np.isin(comms["op"], POINT_TO_POINT))
    table = trace.message_calls
    at = lookup(table["row"], np.arange(len(table)), calls[rows])
    rows, at = rows[at >= 0], at[at >= 0]
    peer = table["peer"][at]
    group = _group_of(trace, peer)
    column = comms["group"].copy()
    column[rows] = group
    return comms.replace(group=column), MESSAGES.table(
        {
            "comm": rows,
            "is_send": comms["op"][rows] == OP_CODE["send"],
            "peer": _as_ranks(peer, trace.process_groups[group].ranks if group != NO_STRING else ()),
            "group": group,
            "size_bytes": comms["size_bytes"][rows],
            "tag": table["tag"][at],
            "called_ns": NULL,
            "is_lost": False,
        }
    )


def _group_of(trace: RankTrace, peer: Array) -> int:
    """The process group of the messages; NO_STRING for the world.

    Calls do not name it: it is the group that holds this rank and all peers; among several, the one named for
    pipelines.
    """
    needed = int(peer.max(initial=-1)) + 1
    every, me = trace.process_groups, trace.identity.rank
    groups = [g for g, group in enumerate(every) if me in group.ranks and len(group.ranks) >= max(needed, 2)]
    if len(groups) > 1:
        named = [g for g in groups if PIPELINE_GROUP.search(f"{every[g].name} {every[g].description}")]
        groups = named or [g for g in groups if len(every[g].ranks) == trace.identity.world_size]
    return groups[0] if len(groups) == 1 else NO_STRING


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
    since = _last_before(np.sort(comms["launch_ns"][rows]), end[rows]), _idle_since(work, end[rows])
    start[rows] = np.maximum.reduce((start[rows], *since))
    start, end = np.append(start, comms["start_ns"][rows]), np.append(end, called)
    of = np.append(np.arange(len(comms)), rows)
    return comms.take(of).replace(start_ns=start, end_ns=end), of


def _last_before(instants: Array, at_ns: Array) -> Array:
    """The last of the sorted instants at or before each of `at_ns`; NULL where there is none."""
    return np.append(instants, NULL)[np.searchsorted(instants, at_ns, side="right") - 1]


def _idle_since(work: Intervals, at_ns: Array) -> Array:
    """The time since when no `work` has run, for each instant; the instant itself during work."""
    since = _last_before(work[1], at_ns)
    begun = _last_before(work[0], at_ns - 1)
    return np.where(begun > since, at_ns, since)

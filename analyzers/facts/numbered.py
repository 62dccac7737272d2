"""Evidence that ranks belong to one job: recording times and first numbered collectives."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS, OP_CODE, POINT_TO_POINT
from ddprof.model import ProcessGroup
from ddprof.tables import NULL

MAX_NUMBERED = 32  # collectives of a rank that are compared with those of others: the first of the window
_EQUAL_BYTES = (OP_CODE["all_reduce"], OP_CODE["broadcast"])  # operations whose message has one size on all members


def recorded_ns(facts: RankFacts) -> tuple[int, int] | None:
    """First and last instant of the recording in unix time; None where its times are relative."""
    tables = [t for t in (facts.steps, facts.comms, facts.host_spans) if len(t)]
    if not facts.has_base_time or not tables:
        return None
    return min(int(t["start_ns"].min()) for t in tables), max(int(t["end_ns"].max()) for t in tables)


def numbered_collectives(facts: RankFacts) -> dict[tuple[str, int], tuple[str, int | None]]:
    """(process group, sequence number) -> (operation, bytes if equal on all members) of the first collectives.

    Without numbers that occur twice in a group, as coalesced collectives share one.
    """
    comms = facts.comms
    rows = np.flatnonzero(
        (comms["seq"] != NULL) & (comms["group"] != NO_STRING) & ~np.isin(comms["op"], POINT_TO_POINT)
    )
    rows = rows[np.lexsort((comms["seq"][rows], comms["group"][rows]))]
    group, seq = comms["group"][rows], comms["seq"][rows]
    is_shared = (group[1:] == group[:-1]) & (seq[1:] == seq[:-1])
    alone = np.ones(len(rows), bool)
    alone[1:] &= ~is_shared
    alone[:-1] &= ~is_shared
    found: dict[tuple[str, int], tuple[str, int | None]] = {}
    keys = list(map(_group_key, facts.process_groups))
    for at in rows[np.flatnonzero(alone)[:MAX_NUMBERED]].tolist():
        of_group, op, size = int(comms["group"][at]), int(comms["op"][at]), int(comms["size_bytes"][at])
        if of_group < len(keys):
            key = keys[of_group], int(comms["seq"][at])
            found[key] = COLLECTIVE_OPS[op], size if op in _EQUAL_BYTES and size != NULL else None
    return found


def sequence_ranges(facts: RankFacts) -> dict[str, tuple[int, int]]:
    """First and last sequence number of the collectives in each process group."""
    comms = facts.comms
    known = (comms["seq"] != NULL) & (comms["group"] != NO_STRING) & ~np.isin(comms["op"], POINT_TO_POINT)
    found: dict[str, tuple[int, int]] = {}
    for group in np.unique(comms["group"][known]).tolist():
        if group < len(facts.process_groups):
            seq = comms["seq"][known & (comms["group"] == group)]
            found[_group_key(facts.process_groups[group])] = int(seq.min()), int(seq.max())
    return found


def _group_key(group: ProcessGroup) -> str:
    return _members_key(group.ranks) if group.ranks else f"{group.name} of {group.size}"


@lru_cache(maxsize=256)
def _members_key(members: tuple[int, ...]) -> str:
    """One shared text for the members of a group, as a thousand ranks name the same thousand members."""
    return ",".join(map(str, sorted(members)))

"""Evidence that ranks are of one job: when they were recorded, and their collectives by number."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS, OP_CODE, POINT_TO_POINT
from ddprof.model import HealthNote, ProcessGroup, RankTrace
from ddprof.tables import NULL, distinct, of_kinds

FEWEST = 3  # numbers: of two the distance says nothing
MAX_NUMBERED = 32  # collectives of a rank that are compared with those of others: the first of the window
_EQUAL_BYTES = (OP_CODE["all_reduce"], OP_CODE["broadcast"])  # operations whose message has one size on all members


def recorded_ns(facts: RankFacts) -> tuple[int, int] | None:
    """First and last instant of the recording in unix time; None where its times are relative."""
    tables = [t for t in (facts.steps, facts.comms, facts.host_spans) if len(t)]
    if not facts.has_base_time or not tables:
        return None
    return min(int(t["start_ns"].min()) for t in tables), max(int(t["end_ns"].max()) for t in tables)


def numbered_by_group(trace: RankTrace) -> tuple[RankTrace, list[HealthNote]]:
    """The trace without numbers of collectives that do not count those of their group: others of one group then have
    another number on each rank.

    The backend nccl2 has one counter for all groups of a process, and counts the wait for a collective as well
    (pytorch#191990). Where groups are counted apart, those whose numbers overlap have numbers in common.
    """
    table = trace.collectives
    is_numbered = (table["seq"] != NULL) & (table["group"] >= 0)
    (group, seq), _ = distinct(table["group"][is_numbered], table["seq"][is_numbered])
    if trace.format != "kineto" or len(seq) < FEWEST or len(np.unique(seq)) < len(seq):
        return trace, []
    order = np.argsort(seq)
    turns = len(np.flatnonzero(np.diff(group[order]))) >= len(np.unique(group)) > 1  # they do not follow one another
    if not turns and (np.diff(seq[order]) % 2).any():
        return trace, []
    unnumbered = trace.collectives.replace(seq=np.full(len(table), NULL))
    issue = f"{trace.path}: the numbers of its collectives do not count those of a group (nccl2 counts per process)"
    note = HealthNote(issue, "collectives are matched by their order within the group", "info")
    return replace(trace, collectives=unnumbered), [note]


def numbered_collectives(facts: RankFacts) -> dict[tuple[str, int], tuple[str, int | None]]:
    """(process group, sequence number) -> (operation, bytes if equal on all members) of the first collectives.

    Without numbers that occur twice in a group, as coalesced collectives share one.
    """
    comms = facts.comms
    rows = np.flatnonzero(
        (comms["seq"] != NULL) & (comms["group"] != NO_STRING) & ~of_kinds(comms["op"], POINT_TO_POINT)
    )
    rows = rows[np.lexsort((comms["seq"][rows], comms["group"][rows]))]
    group, seq = comms["group"][rows], comms["seq"][rows]
    is_shared = (group[1:] == group[:-1]) & (seq[1:] == seq[:-1])
    alone = np.ones(len(rows), bool)
    alone[1:] &= ~is_shared
    alone[:-1] &= ~is_shared
    collectives: dict[tuple[str, int], tuple[str, int | None]] = {}
    keys = list(map(_group_key, facts.process_groups))
    for at in rows[np.flatnonzero(alone)[:MAX_NUMBERED]].tolist():
        of_group, op, size = int(comms["group"][at]), int(comms["op"][at]), int(comms["size_bytes"][at])
        if of_group < len(keys):
            key = keys[of_group], int(comms["seq"][at])
            collectives[key] = COLLECTIVE_OPS[op], size if op in _EQUAL_BYTES and size != NULL else None
    return collectives


def sequence_ranges(facts: RankFacts) -> dict[str, tuple[int, int]]:
    """First and last sequence number of the collectives in each process group."""
    comms = facts.comms
    is_numbered = (comms["seq"] != NULL) & (comms["group"] != NO_STRING) & ~of_kinds(comms["op"], POINT_TO_POINT)
    ranges: dict[str, tuple[int, int]] = {}
    for group in np.unique(comms["group"][is_numbered]).tolist():
        if group < len(facts.process_groups):
            seq = comms["seq"][is_numbered & (comms["group"] == group)]
            ranges[_group_key(facts.process_groups[group])] = int(seq.min()), int(seq.max())
    return ranges


def _group_key(group: ProcessGroup) -> str:
    return _members_key(group.ranks) if group.ranks else f"{group.name} of {group.size}"


@lru_cache(maxsize=256)
def _members_key(members: tuple[int, ...]) -> str:
    """One shared text for the members of a group, as a thousand ranks name the same thousand members."""
    return ",".join(map(str, sorted(members)))

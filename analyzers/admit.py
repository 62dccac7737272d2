"""Facts of files that lie together -> the jobs they are of, each a run with a label of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS, OP_CODE, POINT_TO_POINT
from ddprof.model import HealthNote, ProcessGroup
from ddprof.readers import Source
from ddprof.readers.admission.jobs import Recording, admission_notes, split_jobs
from ddprof.readers.files.names import stem
from ddprof.readers.formats import formats
from ddprof.tables import NULL

MAX_NUMBERED = 32  # collectives of a rank that are compared with those of others: the first of the window
_EQUAL_BYTES = (OP_CODE["all_reduce"], OP_CODE["broadcast"])  # operations whose message has one size on all members


@dataclass(frozen=True)
class Admitted:
    """One job: its label, the positions of its files among those that lie together, and what was assumed."""

    label: str
    members: tuple[int, ...]
    notes: tuple[HealthNote, ...] = ()


def jobs_among(found: Sequence[tuple[Source, RankFacts]], label: str) -> list[Admitted]:
    """The jobs of files that lie together under `label`. A file that holds a whole run is one."""
    files = {source.path for source, _ in found}
    if len(files) < 2 and all(formats()[source.format].is_run for source, _ in found):
        return [Admitted(label, tuple(range(len(found))))] if found else []
    recordings = [recording(facts) for _, facts in found]
    jobs = split_jobs(recordings)
    if len(jobs) == 1:
        return [Admitted(label, tuple(jobs[0]))]
    notes = tuple(admission_notes(jobs, recordings))
    names = [stem(found[job[0]][0].member or found[job[0]][0].path) for job in jobs]
    return [Admitted(f"{label}/{name}", tuple(job), notes) for name, job in zip(names, jobs, strict=True)]


def recording(facts: RankFacts) -> Recording:
    """The evidence in one rank's facts."""
    shared = [g for g in facts.process_groups if len(g.ranks) > 1 or (g.size or 0) > 1]
    return Recording(
        identity=facts.identity,
        path=facts.path,
        window_ns=_recorded_ns(facts),
        communications=len(facts.comms),
        numbered=_numbered_collectives(facts),
        sequences=_sequence_ranges(facts),
        groups=frozenset((g.name, g.size or len(g.ranks)) for g in shared if not g.ranks),
        group_ranks=frozenset(tuple(sorted(g.ranks)) for g in shared if g.ranks),
    )


def _recorded_ns(facts: RankFacts) -> tuple[int, int] | None:
    """First and last instant of the recording, unix time; None where its times are not that."""
    tables = [t for t in (facts.steps, facts.comms, facts.host_spans) if len(t)]
    if not facts.has_base_time or not tables:
        return None
    return min(int(t["start_ns"].min()) for t in tables), max(int(t["end_ns"].max()) for t in tables)


def _numbered_collectives(facts: RankFacts) -> dict[tuple[str, int], tuple[str, int | None]]:
    """(process group, sequence number) -> (operation, bytes where all members have the same) of the first collectives.

    Those whose number no other of their group has: coalesced ones share one.
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


def _sequence_ranges(facts: RankFacts) -> dict[str, tuple[int, int]]:
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
    """One text for all ranks and collectives of a group: a thousand ranks name the same thousand members."""
    return ",".join(map(str, sorted(members)))

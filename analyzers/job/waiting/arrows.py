"""Who waits for whom, as arrows between events: from the collective of the rank that came last to those that waited."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.tables import NULL, Array, Column, Schema, Table

ARROWS = Schema(
    "arrows",
    (
        Column("culprit", "int64", "position of the rank that came last"),
        Column("culprit_track", "int64", "track of its operation, as a row of its trace's tracks"),
        Column("culprit_ns", "int64", "its arrival, own clock"),
        Column("victim", "int64", "position of a rank that waited"),
        Column("victim_track", "int64", "track of its operation, as a row of its trace's tracks"),
        Column("victim_ns", "int64", "end of its wait, own clock, within its operation"),
        Column("wait_ns", "int64", "how long it waited"),
    ),
)


def wait_arrows(job: JobFacts, least_ns: int) -> Table:
    """One arrow per wait of at least `least_ns` for a known last member, the longest first."""
    members, late = job.members, job.instances["late"]
    if not len(members):
        return ARROWS.empty()
    is_last = members["rank"] == late[members["instance"]]
    last_row = np.full(len(late), NULL, np.int64)
    last_row[members["instance"][is_last]] = np.flatnonzero(is_last)
    culprit = last_row[members["instance"]]
    wait = members["ready_ns"] - members["start_ns"]
    victim = np.flatnonzero((culprit != NULL) & ~is_last & (wait >= least_ns))
    victim = victim[np.argsort(-wait[victim], kind="stable")]
    source = culprit[victim]
    return ARROWS.table(
        {
            "culprit": members["rank"][source],
            "culprit_track": _tracks(job, source),
            "culprit_ns": members["start_ns"][source],
            "victim": members["rank"][victim],
            "victim_track": _tracks(job, victim),
            "victim_ns": members["ready_ns"][victim],
            "wait_ns": wait[victim],
        }
    )


def _tracks(job: JobFacts, rows: Array) -> Array:
    ranks, comms = job.members["rank"][rows], job.members["comm"][rows]
    tracks = np.zeros(len(rows), np.int64)
    for position, facts in enumerate(job.ranks):
        mine = ranks == position
        tracks[mine] = facts.comms["track"][comms[mine]]
    return tracks

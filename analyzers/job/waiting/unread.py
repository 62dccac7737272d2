"""Waits for ranks that were not read: the excess of collectives over those of groups that made the same call."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.waits import UNSEEN_FACTOR, UNSEEN_NS
from ddprof.tables import Array, distinct


def unread_wait_ns(job: JobFacts) -> Array:
    """Excess of each group's collectives, on the member that waits least, over those of the fastest group that made the
    same call; float64, shape (groups,). Groups of which all were read count 0."""
    instances, members = job.instances, job.members
    shortest = np.full(len(instances), np.iinfo(np.int64).max)
    np.minimum.at(shortest, members["instance"], members["end_ns"] - members["start_ns"])
    excess = np.zeros(len(job.groups))
    rows = np.flatnonzero(~instances["is_message"] & (instances["members"] > 0))
    if not len(rows):
        return excess
    size = job.groups["size"][instances["group"][rows]]
    _, kind = distinct(instances["op"][rows], instances["size_bytes"][rows], size)
    group = instances["group"][rows]
    usual: dict[int, dict[int, float]] = {}
    for k in np.unique(kind).tolist():
        of_kind = kind == k
        here = group[of_kind]
        usual[k] = {g: float(np.median(shortest[rows][of_kind][here == g])) for g in np.unique(here).tolist()}
    fastest = np.array([min(usual[k].values()) for k in kind.tolist()])
    over = shortest[rows] - fastest
    unseen = (shortest[rows] > UNSEEN_FACTOR * fastest + UNSEEN_NS) & ~instances["complete"][rows]
    np.add.at(excess, group[unseen], over[unseen])
    return excess

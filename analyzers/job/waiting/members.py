"""Rows of MEMBERS by rank, indexed once: a search per rank would pass over all rows a thousand times; and instances in
steps.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.job.model import JobFacts
from ddprof.derived_once import remembered
from ddprof.tables import Array, Table


def members_of(members: Table, position: int) -> Array:
    """The rows of a rank, in order."""
    order, begins = _by_rank(members)
    return order[begins[position] : begins[position + 1]] if position + 1 < len(begins) else order[:0]


@remembered
def _by_rank(members: Table) -> tuple[Array, Array]:
    """All rows sorted by rank, and the first row of each position; shape (positions + 1,)."""
    rank = members["rank"]
    return np.argsort(rank, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(rank))))


@remembered
def instances_in_steps(job: JobFacts) -> Array:
    """Mask of instances that run while a member is in a step, shape (instances,): a recording holds more, of the steps
    that are left out and around them.
    """
    inside, members = np.zeros(len(job.instances), bool), job.members
    for position, facts in enumerate(job.ranks):
        rows = members_of(members, position)
        in_steps = intervals.overlap(
            intervals.union(*facts.steps.bounds), members["start_ns"][rows], members["end_ns"][rows]
        )
        inside[members["instance"][rows[in_steps > 0]]] = True
    return inside

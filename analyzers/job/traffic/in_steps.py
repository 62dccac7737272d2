"""Communications of the steps: a recording holds more, of the steps that are left out and around them."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.members import members_of
from ddprof.derived_once import remembered
from ddprof.tables import Array


@remembered
def instances_in_steps(job: JobFacts) -> Array:
    """Mask of instances that run while a member is in a step, shape (instances,)."""
    inside, members = np.zeros(len(job.instances), bool), job.members
    for position, facts in enumerate(job.ranks):
        rows = members_of(members, position)
        in_steps = intervals.overlap(
            intervals.union(*facts.steps.bounds), members["start_ns"][rows], members["end_ns"][rows]
        )
        inside[members["instance"][rows[in_steps > 0]]] = True
    return inside

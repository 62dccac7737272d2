"""Which parallelism each communication of a rank serves."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.members import members_of
from ddprof.tables import Array


def roles_by_comm(job: JobFacts, position: int, told: Array) -> Array:
    """Role of the group of each comm of a rank; 'unmatched' where waiting and moving data cannot be told apart.

    `told`, shape (instances,): of which instances they can (explained.with_known_transfer).
    """
    role = np.full(len(job.ranks[position].comms), "unmatched", dtype=object)
    mine = members_of(job.members, position)
    mine = mine[told[job.members["instance"][mine]]]
    group = job.instances["group"][job.members["instance"][mine]]
    role[job.members["comm"][mine]] = job.groups["role"][group]
    return role

"""Gradients as a job reduces them: the width of their elements, and whether DistributedDataParallel does it."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.statistics import roles_by_comm, with_known_transfer
from ddprof.model import element_bytes
from ddprof.tables import Array

NARROW_BYTES = 2  # of an element: compression to 16 bit makes it no smaller
MOST = 0.5  # of the bytes of a role


def are_narrow(job: JobFacts, role: str) -> bool:
    """True where elements of 16 bits or fewer are most of the bytes that groups of this role move."""
    separable, narrow, every = with_known_transfer(job), 0, 0
    for position, facts in enumerate(job.ranks):
        of_role = (roles_by_comm(job, position, separable) == role) & (facts.comms["size_bytes"] > 0)
        size = facts.comms["size_bytes"]
        every += int(size[of_role].sum())
        narrow += int(size[of_role & _is_narrow(facts)].sum())
    return narrow > MOST * every


def _is_narrow(facts: RankFacts) -> Array:
    """Mask of communications with elements of 16 bits or fewer, shape (comms,)."""
    kinds = np.unique(facts.comms["dtype"])
    widths = [element_bytes(facts.strings[kind]) if kind >= 0 else None for kind in kinds.tolist()]
    narrow = [kind for kind, width in zip(kinds.tolist(), widths, strict=True) if width and width <= NARROW_BYTES]
    return np.isin(facts.comms["dtype"], narrow)


def reduced_by_ddp(job: JobFacts) -> bool:
    """True where capture or the wrapper's own ranges show DistributedDataParallel."""
    wrapper = "DistributedDataParallel"
    return any("ddp" in f.sidecar.parallelism or any(wrapper in text for text in f.strings) for f in job.ranks)

"""When the gathers and reductions of sharded units run, and how much of them no compute hides.

Units compute one after another; their communication shares one stream, in the order of launch (torch.distributed.fsdp:
compute of a unit starts when the unit before has ended and its own parameters are there; a gather that is launched
ahead starts when its stream is free and the compute before the unit before has ended; a unit that is not gathered
itself, such as the last of the forward pass at the begin of the backward pass, launches none ahead).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.tables import Array


@dataclass(frozen=True)
class UnitSchedule:
    """Exposed time of each unit's gather, and of the reductions that nothing follows; ns."""

    stalls_ns: Array  # (units,), that compute waits before each unit
    tail_ns: float  # communication after the last compute

    @property
    def exposed_ns(self) -> float:
        """All of it."""
        return float(self.stalls_ns.sum()) + self.tail_ns


def scheduled(gather_ns: Array, compute_ns: Array, reduce_ns: Array, is_ahead: bool) -> UnitSchedule:
    """One pass; each array (units,), 0 where a unit has none. `is_ahead`: gathers are launched one unit early."""
    count = len(compute_ns)
    gathers, computes, reductions = (column.tolist() for column in (gather_ns, compute_ns, reduce_ns))
    comm = compute = 0.0  # when the stream of communication, and compute, is free
    ready = [0.0 if us > 0 else -1.0 for us in gathers]  # 0: to be gathered; -1: is there already
    stalls = np.zeros(count)
    for unit in range(count):
        needed = (unit, unit + 1) if is_ahead and gathers[unit] > 0 else (unit,)
        for other in needed:
            if other < count and ready[other] == 0:
                ready[other] = comm = max(comm, compute) + gathers[other]
        begin = max(compute, ready[unit])
        stalls[unit] = begin - compute
        compute = begin + computes[unit]
        if reductions[unit] > 0:
            comm = max(comm, compute) + reductions[unit]
    return UnitSchedule(stalls, max(0.0, comm - compute))

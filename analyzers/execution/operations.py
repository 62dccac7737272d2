"""Operations that a replay moves on one rank's streams: those of its device or, on a CPU rank, its communications;
and the host's marks of a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from ddprof.tables import Array

BACKWARD_SHARE = 2 / 3  # of a step's compute, where no range tells forward from backward: twice forward's products
NEVER = -(2**62)  # ns; "no constraint": earlier than any time


@dataclass(frozen=True)
class Operations:
    """Operations by track, then start. Arrays of one length; times on the rank's own clock."""

    row: Array  # of facts.device_ops (of facts.comms on a CPU rank)
    start_ns: Array
    dur_ns: Array
    track: Array
    launch_ns: Array  # NEVER where unknown
    is_comm: Array
    is_copy: Array  # between host and device
    comm: Array  # row of facts.comms, -1

    @property
    def end_ns(self) -> Array:
        """End of each operation."""
        return self.end_of_ns(slice(None))

    @property
    def issued_ns(self) -> Array:
        """Launch of each operation; its start where no launch is known."""
        return self.issued_of_ns(slice(None))

    def end_of_ns(self, rows: Array | slice) -> Array:
        """End of some operations."""
        return np.asarray(self.start_ns[rows] + self.dur_ns[rows])

    def issued_of_ns(self, rows: Array | slice) -> Array:
        """Launch of some operations, as `issued_ns`."""
        launch_ns = self.launch_ns[rows]
        return np.where(launch_ns == NEVER, self.start_ns[rows], launch_ns)


class StepMarks(Struct, frozen=True):
    """Host times of one step, ns on the rank's own clock."""

    start_ns: int
    forward_end_ns: int | None  # end of the last forward; None where that is unknown, or when kernels were launched
    until_ns: int  # start of the last optimizer, or the end of the step

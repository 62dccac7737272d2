"""Operations that a replay moves, and the limits that differ between ranks on devices and CPU ranks. Values and their
origin are in `choose`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from ddprof.analyzers.job.traffic.cost import TransferPrior
from ddprof.tables import Array

BACKWARD_SHARE = 2 / 3  # of a step's compute, where no range tells forward from backward: twice forward's products
NEVER = -(2**62)  # ns; "no constraint": earlier than any time


@dataclass(frozen=True)
class Operations:
    """Operations that a replay moves on one rank's streams, by track, then start: those of its device, or a CPU rank's
    communications. Arrays of one length; times on the rank's own clock.
    """

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


class Limits(Struct, frozen=True):
    """Thresholds of rules and replay for one kind of ranks. 0 and infinity disable a limit."""

    min_exposed_share: float  # of the step: transfer exposed for less is not worth a word
    min_volume_bytes: int  # per step: the volume that does, however long its transfer is exposed
    min_stage_excess: float  # of the mean stage's work: what makes a pipeline stage slow
    min_compute_excess: float  # of the typical peer's time for the same work: what makes a rank's compute slow
    sure_compute_excess: float  # the same in nearly every step: slow however much larger the typical excess is
    min_work_spread: float  # of the mean rank's compute in a step, to the slowest rank's: unequal work
    min_host_excess: float  # of the step, over the typical peer's host time: what makes a host slow
    transfer_prior: TransferPrior  # what a transfer takes where the run does not tell
    unmeasured_interference: float  # relative, of compute beside communication, where the run has none to measure
    handover_us: float  # per batch taken over from a worker that has no core of its own
    training_cores: float  # of the host that a rank keeps busy while it computes
    all_cores_excess: float  # of the time that work takes alone, once every core of its host is busy
    moving_threads: float  # of the host that are busy while a transfer lasts
    max_unprofiled_ratio: float  # of work without the profiler to the recorded
    handed_share: float  # of a transfer: handing data from one host thread to another, which the profiler slows
    drift: float  # of what is left of the step, at most: what else changes when half of the step goes
    packing_ns_per_mib: float  # casting gradients to 16 bit and back, per MiB of them in 32 bit

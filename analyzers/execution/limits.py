"""Thresholds and rates that differ between devices and CPU ranks; their values and origin are in `device` and `cpu`."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.analyzers.job.traffic.transfer_curve import TransferPrior


@dataclass(frozen=True)
class Limits:
    """Thresholds of rules and replay for one kind of ranks. 0 and infinity disable a limit."""

    min_exposed_share: float  # of the step: transfer exposed for less is not worth a word
    min_volume_share: float  # of the step: exposed transfer of a whole group that speaks of its volume
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
    handed_share: float  # of a transfer: handing data from one host thread to another, which the profiler slows
    drift: float  # of what is left of the step, at most: what else changes when half of the step goes
    packing_ns_per_mib: float  # casting gradients to 16 bit and back, per MiB of them in 32 bit

"""Ranks whose work runs on an accelerator, launched by their host."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from ddprof.analyzers.execution.operations import BACKWARD_SHARE, NEVER, Operations, StepMarks
from ddprof.analyzers.execution.protocol import Limits
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.names import INFERRED, OP_CODE
from ddprof.analyzers.facts.waiting_launches import RETURNS_EARLY_NS
from ddprof.analyzers.facts.work import free_host, stalled_launches
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.slowdown import interference
from ddprof.analyzers.job.traffic.transfer_curve import LATENCY_BOUND_RATE, TransferPrior
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array


class DeviceExecution:
    """Kernels and transfers run on streams; the host runs ahead."""

    limits = Limits(
        min_exposed_share=0.01,
        min_volume_share=0.0,
        min_volume_bytes=0,
        min_stage_excess=0.05,
        min_compute_excess=0.02,  # healthy ranks of one model differ by about 0.5 %
        sure_compute_excess=inf,
        min_work_spread=0.03,
        min_host_excess=0.01,
        # NCCL's own base and hop latencies (tuning.cc) add up to 20 to 40 us in a node; a fast link's bus bandwidth.
        transfer_prior=TransferPrior(30_000.0, 100.0, LATENCY_BOUND_RATE),
        unmeasured_interference=0.07,  # Proteus (TPDS'24) reports 0 to 0.1
        handover_us=0.0,
        training_cores=0.0,
        all_cores_excess=0.0,
        moving_threads=0.0,
        max_unprofiled_ratio=1.0,  # the profiler slows a host, and its device nothing
        handed_share=0.0,
        drift=0.0,
        packing_ns_per_mib=2_000.0,  # at HBM rate: 2 x 1.5 MiB read and written at 1.5 TB/s
    )
    work_noun = "kernels"
    runs_ahead = True
    computes_on_host = False
    waits_between_streams = True
    messages_last_until_waited_for = False
    peers_by_kernel = True
    compression_hook = "bf16_compress_hook"  # needs NCCL
    loader_arguments = ", pin_memory=True"

    def operations(self, facts: RankFacts) -> Operations:
        """Operations that start after the first step mark and are launched before the last."""
        ops, steps = facts.device_ops, facts.steps
        launch = np.where(ops["launch_ns"] == NULL, NEVER, ops["launch_ns"])
        # A call in which the thread stood still hands its operation over when it returns.
        launch = np.where(stalled_launches(ops), np.minimum(ops["launch_end_ns"], ops["start_ns"]), launch)
        rows = np.flatnonzero((ops["start_ns"] >= steps["start_ns"][0]) & (launch < steps["mark_end_ns"][-1]))
        rows = rows[np.lexsort((ops["start_ns"][rows], ops["track"][rows]))]
        track = ops["track"][rows]
        launch = launch[rows]
        # The first operation of a stream needs something to follow: without a known launch, the first step mark.
        first = np.ones(len(rows), bool)
        first[1:] = track[1:] != track[:-1]
        launch[first & (launch == NEVER)] = steps["start_ns"][0]
        return Operations(
            row=rows.astype(np.int32),
            start_ns=ops["start_ns"][rows],
            dur_ns=(ops["end_ns"] - ops["start_ns"])[rows],
            track=track,
            launch_ns=launch,
            is_comm=ops["work"][rows] == Work.COMM,
            is_copy=ops["work"][rows] == Work.COPY,
            comm=np.where(ops["comm"][rows] == NULL, -1, ops["comm"][rows]).astype(np.int32),
        )

    def host_busy(self, facts: RankFacts) -> Intervals:
        """Intervals in which the host is free to run."""
        return free_host(facts)

    def host_waits(self, facts: RankFacts, arrived_ns: Array) -> Intervals:
        """Host waits in inferred rendezvous; every other host wait is a synchronizing call."""
        comms = facts.comms
        is_inferred = (comms["op"] == OP_CODE[INFERRED]) & (comms["launch_end_ns"] == comms["end_ns"])
        return comms.bounds_of(is_inferred)

    def latest_release_ns(self, facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
        """The end of what a call waited for lies at most so much after the call returned."""
        return end + RETURNS_EARLY_NS

    def backward_start_ns(self, ops: Operations, marks: StepMarks) -> int:
        """Start of the first kernel launched after forward; without forward, of the one in which a third is done."""
        rows = _backward_kernels(ops, marks)
        if not len(rows):
            return marks.start_ns if marks.forward_end_ns is None else marks.until_ns
        if marks.forward_end_ns is not None:
            return int(ops.start_ns[rows[0]])
        done = np.cumsum(ops.dur_ns[rows])
        return int(ops.start_ns[rows[np.searchsorted(done, (1 - BACKWARD_SHARE) * done[-1])]])

    def backward_compute_ns(self, facts: RankFacts, ops: Operations, marks: Sequence[StepMarks]) -> Array:
        """Time of kernels launched between forward and optimizer; without forward, BACKWARD_SHARE of the step's."""
        took = np.array([float(ops.dur_ns[_backward_kernels(ops, step)].sum()) for step in marks])
        return np.asarray(took * [BACKWARD_SHARE if step.forward_end_ns is None else 1.0 for step in marks])

    def interference(self, ranks: Sequence[RankFacts]) -> float:
        """Slowdown of kernels beside communication, whose kernels take SMs and bandwidth even while waiting."""
        return interference(ranks)

    def sees_waits(self, job: JobFacts) -> bool:
        """Always: the device idles or runs a communication kernel."""
        return True


def _backward_kernels(ops: Operations, marks: StepMarks) -> Array:
    """Kernels and copies launched between forward (unknown: the start of the step) and optimizer, in order of start."""
    lo_ns = marks.start_ns if marks.forward_end_ns is None else marks.forward_end_ns
    issued_ns = ops.issued_ns
    rows = np.flatnonzero(~ops.is_comm & (issued_ns >= lo_ns) & (issued_ns < marks.until_ns))
    return rows[np.argsort(ops.start_ns[rows], kind="stable")]

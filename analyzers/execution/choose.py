"""Execution of ranks on CPUs and on accelerators, and the choice of a job's."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.operations import BACKWARD_SHARE, NEVER, Limits, Operations, StepMarks
from ddprof.analyzers.facts.device import RETURNS_EARLY_NS
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.names import INFERRED, OP_CODE
from ddprof.analyzers.facts.work import free_host, issued_ns, running, stalled_launches
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.oversubscription import shared_cores
from ddprof.analyzers.job.slowdown import interference
from ddprof.analyzers.job.traffic.cost import LATENCY_BOUND_RATE, TransferPrior
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array

# Ranks whose work runs on an accelerator, launched by their host.


class Execution:
    """Answers of ranks on devices: kernels and transfers run on streams; the host runs ahead."""

    limits = Limits(
        min_exposed_share=0.01,
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
    work_noun = "kernels"  # what a piece of compute is called
    runs_ahead = True  # the host fills a launch queue, so what it does costs nothing while the queue is filled
    computes_on_host = False  # compute is time of the host: its operators, and Python between them
    waits_between_streams = True  # an operation may wait for one on another stream of its rank
    messages_last_until_waited_for = False  # as recorded, however early the data came
    peers_by_kernel = True  # the same kernels are compared, whatever else ranks do; otherwise all that they do
    # Of torch.distributed.algorithms.ddp_comm_hooks.default_hooks, "" where none pays. This one needs NCCL.
    compression_hook = "bf16_compress_hook"
    loader_arguments = ", pin_memory=True"  # that any DataLoader should have, with a comma before each

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
        """Intervals in which the host works at its own speed, where a slow host shows: while it is free to run."""
        return free_host(facts)

    def host_waits(self, facts: RankFacts, arrived_ns: Array) -> Intervals:
        """Host waits that no call of its own shows: inferred rendezvous. All others are synchronizing calls."""
        comms = facts.comms
        is_inferred = (comms["op"] == OP_CODE[INFERRED]) & (comms["launch_end_ns"] == comms["end_ns"])
        return comms.bounds_of(is_inferred)

    def latest_release_ns(self, facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
        """Latest recorded end of the operation of each host wait: so much after the call that waited returned."""
        return end + RETURNS_EARLY_NS

    def backward_start_ns(self, ops: Operations, marks: StepMarks) -> int:
        """Start of a step's last backward pass, ns on the rank's own clock: of the first kernel launched after forward;
        without forward, of the one in which a third is done.
        """
        rows = _backward_kernels(ops, marks)
        if not len(rows):
            return marks.start_ns if marks.forward_end_ns is None else marks.until_ns
        if marks.forward_end_ns is not None:
            return int(ops.start_ns[rows[0]])
        done = np.cumsum(ops.dur_ns[rows])
        return int(ops.start_ns[rows[np.searchsorted(done, (1 - BACKWARD_SHARE) * done[-1])]])

    def backward_compute_ns(self, facts: RankFacts, ops: Operations, marks: Sequence[StepMarks]) -> Array:
        """Compute (ns) of the last backward pass of each step, shape (steps,): of kernels launched between forward and
        optimizer; without forward, BACKWARD_SHARE of the step's.
        """
        took = np.array([float(ops.dur_ns[_backward_kernels(ops, step)].sum()) for step in marks])
        return np.asarray(took * [BACKWARD_SHARE if step.forward_end_ns is None else 1.0 for step in marks])

    def interference(self, ranks: Sequence[RankFacts]) -> float:
        """Relative excess of kernels beside communication, whose kernels take SMs and bandwidth even while waiting."""
        return interference(ranks)

    def sees_waits(self, job: JobFacts) -> bool:
        """Always tells a waiting rank from a busy one: its device idles or runs a communication kernel."""
        return True


def _backward_kernels(ops: Operations, marks: StepMarks) -> Array:
    """Kernels and copies launched between forward (unknown: the start of the step) and optimizer, in order of start."""
    lo_ns = marks.start_ns if marks.forward_end_ns is None else marks.forward_end_ns
    issued_ns = ops.issued_ns
    rows = np.flatnonzero(~ops.is_comm & (issued_ns >= lo_ns) & (issued_ns < marks.until_ns))
    return rows[np.argsort(ops.start_ns[rows], kind="stable")]


# CPU ranks: their training threads take the place of the device, and share cores with everything else.

# Operator times of CPU ranks that share cores differ without any fault: over 3 to 5 traced steps by 25 % and more in 15
# of 36 healthy jobs of 2 and 4 ranks on two cores, by up to 29 % in every step (2026-11-27).
MIN_COMPUTE_EXCESS = 0.35
# Between the stamped end of a communication and the moment the waiting thread runs again, whichever is first.
WAKE_NS = 300_000  # of a short wait
WAKE_DIVISOR = 50  # 1 / 50 of a long wait
IDLE_ON_DIVISOR = 5  # 1 / 5 of a wait: the most that a host idles on after the communication that it waited for
# The backend's thread releases the waiting thread first and stamps the end afterwards. With four gloo ranks on two busy
# cores it was descheduled in between for 12 ms of a wait of 100 ms (measured 2026-11-22).
LATE_STAMP_DIVISOR = 5  # 1 / 5 of the wait, and only where the wait outlasted the arrival of the last member
MIN_WAIT_NS = 30_000  # shorter idle pieces beside a communication are Python between operators


class CpuExecution(Execution):
    """Other answers of CPU ranks: operators run on the host's threads, communication on the backend's (gloo, MPI)."""

    limits = Limits(
        min_exposed_share=0.12,  # backends share cores with the operators: healthy runs expose up to 10 %
        # A few MB per step cost wake-ups of threads on shared cores more than they cost the link: a word on volume
        # takes a volume, or a link that plainly holds the step.
        min_volume_bytes=8 * 2**20,
        min_stage_excess=0.2,  # operator times on shared cores differ by 10 % and more without any fault
        min_compute_excess=MIN_COMPUTE_EXCESS,
        sure_compute_excess=MIN_COMPUTE_EXCESS,
        min_work_spread=0.30,  # operators share cores with everything else: healthy runs spread by 10 to 25 %
        min_host_excess=0.05,  # threads are descheduled for milliseconds without any fault
        # gloo's all-reduce of 64 KiB between two ranks took 363 us; its rate is that of memory copies.
        transfer_prior=TransferPrior(250_000.0, 2.0, 0.0),
        unmeasured_interference=0.0,  # the number of cores tells it
        # For every batch a worker wakes and takes a core from a rank for one slice of the scheduler, and its reader
        # thread takes another: 2 to 11 ms per step on six workloads on two virtual cores (docs/workloads.md).
        handover_us=5_000.0,
        training_cores=1.0,
        # Shared caches and memory, lower clocks. Convolutions and matrix products on two virtual cores, one process
        # against two, took 0 to 10 % longer (measured 2026-11-22).
        all_cores_excess=0.05,
        moving_threads=1.0,  # gloo copies and adds, the kernel copies twice more
        max_unprofiled_ratio=2.0,  # cores are shared with what the machine happens to do
        handed_share=0.5,  # set on the workload runs of docs/workloads.md (2026-11-22)
        # Compute on shared cores runs up to this much faster once other ranks no longer spin or sleep
        # (docs/workloads.md).
        drift=0.2,
        packing_ns_per_mib=400_000.0,  # on a host core at 8 GB/s
    )
    work_noun = "operators"
    runs_ahead = False
    computes_on_host = True
    waits_between_streams = False
    messages_last_until_waited_for = True
    peers_by_kernel = False
    # Gradients in 16 bit made steps longer here (3 % on a job of docs/workloads.md, 45 % on another): cores cast them
    # twice and add them in software.
    compression_hook = ""
    loader_arguments = ""  # there is no copy to a CPU, so pinned memory serves nothing

    def operations(self, facts: RankFacts) -> Operations:
        """Communication on the backend's threads, which take the place of streams; there is no device queue."""
        comms, steps = facts.comms, facts.steps
        rows = np.flatnonzero((comms["start_ns"] >= steps["start_ns"][0]) & (comms["start_ns"] < steps["end_ns"][-1]))
        rows = rows[np.lexsort((comms["start_ns"][rows], comms["track"][rows]))]
        return Operations(
            row=rows,
            start_ns=comms["start_ns"][rows],
            dur_ns=(comms["end_ns"] - comms["start_ns"])[rows],
            track=comms["track"][rows],
            launch_ns=issued_ns(comms)[rows],
            is_comm=np.ones(len(rows), bool),
            is_copy=np.zeros(len(rows), bool),
            comm=rows,
        )

    def host_busy(self, facts: RankFacts) -> Intervals:
        """Intervals of the training thread on a core, operators included."""
        return running(facts)

    def host_waits(self, facts: RankFacts, arrived_ns: Array) -> Intervals:
        """Idle host time beside communication that lasts until one ends, each piece by itself.

        `Work.wait` leaves no event. On busy cores the end of a communication, stamped by a thread of the backend, and
        the thread that waited for it drift apart: either may run first. `arrived_ns`: for each row of the rank's comms,
        by when the last member had arrived at the latest, on the rank's clock.
        """
        start, end = intervals.union(*facts.exposed.bounds)
        if not len(start):
            return start, end
        # Threads wake a little after the communication they waited for, and buckets are waited for one by one.
        ends = np.sort(facts.comms["end_ns"])
        at = np.searchsorted(ends, end + _wake_ns(start, end), side="right") - 1
        released = np.where(at >= 0, ends[np.maximum(at, 0)], NEVER)
        woken = (released > start) & (end - released <= np.maximum(WAKE_NS, (end - start) // IDLE_ON_DIVISOR))
        woken |= _late_stamps(facts, start, end, arrived_ns) != NEVER
        waits = woken & (end - start > MIN_WAIT_NS)
        return start[waits], end[waits]

    def latest_release_ns(self, facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
        """A thread that waits is released before the backend stamps the end, and either may be descheduled."""
        return np.asarray(np.maximum(end + _wake_ns(start, end), _late_stamps(facts, start, end, arrived_ns)))

    def backward_start_ns(self, ops: Operations, marks: StepMarks) -> int:
        """The end of forward; where that is unknown, a third of the way to the optimizer."""
        if marks.forward_end_ns is not None:
            return marks.forward_end_ns
        return int(marks.start_ns + (1 - BACKWARD_SHARE) * (marks.until_ns - marks.start_ns))

    def backward_compute_ns(self, facts: RankFacts, ops: Operations, marks: Sequence[StepMarks]) -> Array:
        """While the training thread is on a core: neither loading nor waiting hides communication."""
        work = running(facts)
        passes = (intervals.clip(work, self.backward_start_ns(ops, step), step.until_ns) for step in marks)
        return np.array([float(intervals.length(spans)) for spans in passes])

    def interference(self, ranks: Sequence[RankFacts]) -> float:
        """Slowdown of operators while the backend's thread moves data on a second core."""
        loads = list(filter(None, shared_cores(ranks)))
        if not loads or len(loads) < len(ranks):
            return 0.0
        share = sum(many / cores for many, cores in loads) / len(loads)
        return max(1.0, 2 * share) / max(1.0, share) - 1.0

    def sees_waits(self, job: JobFacts) -> bool:
        """True where communication was recorded: `Work.wait` leaves no event, so waiting looks like Python."""
        return len(job.instances) > 0


def _wake_ns(start: Array, end: Array) -> Array:
    return np.asarray(np.maximum(WAKE_NS, (end - start) // WAKE_DIVISOR))


def _late_stamps(facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
    """Recorded end of the communication of each wait, where that was stamped after the wait had ended; else NEVER.

    The communication of a wait is the next one to end, if it was launched before the wait, its last member arrived
    during the wait, and its end was stamped soon after. A wait that ended before the last member arrived was for
    something else.
    """
    comms = facts.comms
    order = np.argsort(comms["end_ns"], kind="stable")
    at = np.searchsorted(comms["end_ns"][order], end, side="right")
    stamps = np.full(len(end), NEVER)
    some = np.flatnonzero(at < len(order))
    comm = order[at[some]]
    launch, stamp, arrived = issued_ns(comms)[comm], comms["end_ns"][comm], arrived_ns[comm]
    ours = (launch <= start[some]) & (start[some] < arrived) & (arrived <= end[some])
    ours &= stamp - end[some] <= (end - start)[some] // LATE_STAMP_DIVISOR
    stamps[some[ours]] = stamp[ours]
    return stamps


DEVICE, CPU = Execution(), CpuExecution()


def execution_of(job: JobFacts) -> Execution:
    """The execution of the job's ranks."""
    return DEVICE if job.on_device else CPU


def rank_execution(facts: RankFacts) -> Execution:
    """The execution of one rank: the job's, except for a rank with a damaged trace."""
    return DEVICE if facts.is_device_rank else CPU

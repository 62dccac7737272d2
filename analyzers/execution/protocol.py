"""The questions whose answers differ between ranks on devices and CPU ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ddprof.analyzers.execution.backward import StepMarks
from ddprof.analyzers.execution.limits import Limits
from ddprof.analyzers.execution.operations import Operations
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts
from ddprof.intervals import Intervals
from ddprof.tables import Array


class Execution(Protocol):
    """The way in which the ranks of a job execute their work."""

    limits: Limits
    work_noun: str  # what a piece of compute is called: "kernels"
    runs_ahead: bool  # the host fills a launch queue, so what it does costs nothing while the queue is filled
    computes_on_host: bool  # compute is time of the host: its operators, and Python between them
    peers_by_kernel: bool  # the same kernels are compared, whatever else ranks do; otherwise all that they do
    waits_between_streams: bool  # an operation may wait for one on another stream of its rank
    messages_last_until_waited_for: bool  # as recorded, however early the data came
    compression_hook: str  # of torch.distributed.algorithms.ddp_comm_hooks.default_hooks; "" where none pays
    loader_arguments: str  # that any DataLoader should have, with a comma before each

    def operations(self, facts: RankFacts) -> Operations:
        """Operations on the rank's streams inside its steps, of which it has at least one."""
        ...

    def host_busy(self, facts: RankFacts) -> Intervals:
        """Intervals in which the host works at its own speed, where a slow host shows."""
        ...

    def host_waits(self, facts: RankFacts, arrived_ns: Array) -> Intervals:
        """Waits of the host for communication that no call of its own shows, one interval each.

        `arrived_ns`: for each row of the rank's comms, by when the last member had arrived at the latest, ns.
        """
        ...

    def latest_release_ns(self, facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
        """The latest recorded end that the operation of each host wait can have."""
        ...

    def backward_start_ns(self, ops: Operations, marks: StepMarks) -> int:
        """Start of the last backward pass of a step, ns on the rank's own clock."""
        ...

    def backward_compute_ns(self, facts: RankFacts, ops: Operations, marks: Sequence[StepMarks]) -> Array:
        """Compute (ns) of the last backward pass of each step, shape (steps,)."""
        ...

    def interference(self, ranks: Sequence[RankFacts]) -> float:
        """Excess duration of compute beside communication over alone, relative; 0 where unknown."""
        ...

    def sees_waits(self, job: JobFacts) -> bool:
        """True where a rank that waits for its peers is distinguishable from a busy one."""
        ...

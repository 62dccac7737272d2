"""The questions whose answers differ between ranks on devices and CPU ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ddprof.analyzers.execution.limits import Limits
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts


class Execution(Protocol):
    """How the ranks of a job execute their work."""

    limits: Limits
    work_noun: str  # what a piece of compute is called: "kernels"
    runs_ahead: bool  # the host fills a launch queue, so what it does costs nothing while the queue is filled
    peers_by_kernel: bool  # the same kernels are compared, whatever else ranks do; otherwise all that they do
    compression_hook: str  # of torch.distributed.algorithms.ddp_comm_hooks.default_hooks
    loader_arguments: str  # that any DataLoader should have, with a comma before each

    def interference(self, ranks: Sequence[RankFacts]) -> float:
        """How much longer compute takes beside communication than alone, relative; 0 where that is unknown."""
        ...

    def sees_waits(self, job: JobFacts) -> bool:
        """Whether a rank that waits for its peers can be told from a busy one."""
        ...

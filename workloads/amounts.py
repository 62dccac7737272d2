"""Calibration of a piece of work: the number of repetitions that take a given time per step."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from ddprof.workloads.job import Place

CALIBRATION_CALLS = 3


class Amount:
    """Repeats work for about `delay_s` seconds per step; how often is measured when it is first done.

    `together`: all ranks do it, equally often (work in which ranks meet would hang otherwise), and its time includes
    waiting. Else it is counted in CPU time: on a busy machine wall time would give a fault that is too small.
    """

    def __init__(self, delay_s: float, place: Place, *, together: bool = False) -> None:
        self.delay_s = delay_s
        self.device = place.device
        self.together = together
        self.clock = time.perf_counter if together or place.device.type == "cuda" else time.thread_time
        self.rounds = 0

    def of(self, work: Callable[[int], object]) -> None:
        """Do the work as often as it takes; it is given the number of the round."""
        if not self.rounds:
            self._measure(work)
        for number in range(self.rounds):
            work(number)

    def _measure(self, work: Callable[[int], object]) -> None:
        costs_s = []
        for _ in range(CALIBRATION_CALLS):
            started = self.clock()
            work(0)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            costs_s.append(self.clock() - started)
        rounds = torch.tensor(max(1, round(self.delay_s / min(costs_s))), device=self.device)
        if self.together:
            dist.all_reduce(rounds, dist.ReduceOp.MIN)
        self.rounds = int(rounds)

"""Faults by which a script makes its ranks meet in every step: barriers, collectives of objects, gathered metrics."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from ddprof.workloads.amounts import Amount
from ddprof.workloads.job import Place

RECORDS = 200  # of a rank's log, per exchange


class Meetings:
    """Work of the script with all ranks after each step. `gather`: tensors of all ranks as one."""

    def __init__(self, place: Place, gather: Callable[[Tensor], Tensor] | None = None) -> None:
        switches = place.switches
        self.place = place
        self.gather = gather or gather_all
        self.amount = Amount(switches.delay_s, place, together=True)
        self.barriers = switches.on("barriers", until="none")
        self.objects = switches.on("objects", until="own")
        self.metrics = switches.on("gathered-metrics", until="at-end")
        self.right = torch.zeros((), dtype=torch.int64, device=place.device)

    def after(self, step: int, scores: Tensor, labels: Tensor) -> None:
        """`scores`: (batch, classes) of this rank; `labels`: (batch,)."""
        if self.barriers:
            self.amount.of(lambda _: wait_for_everyone())
        if self.objects:
            records = [{"step": step, "rank": self.place.rank, "value": random.random()} for _ in range(RECORDS)]
            self.amount.of(lambda _: exchange(records))
        if self.metrics:
            self.amount.of(lambda _: accuracy_of_all(scores, labels, self.gather))
        if self.place.switches.on("gathered-metrics"):
            self.right += (scores.detach().argmax(1) == labels).sum()


def wait_for_everyone() -> None:
    """Barrier around a timed part, as scripts have it."""
    dist.barrier()


def exchange(records: list[dict[str, float]]) -> int:
    """Characters logged by all ranks, exchanged as Python objects."""
    everyone: list[list[dict[str, float]] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, records)
    return len(json.dumps(everyone))


def accuracy_of_all(scores: Tensor, labels: Tensor, gather: Callable[[Tensor], Tensor]) -> float:
    """Accuracy of the whole batch, with predictions and labels gathered from all ranks."""
    predicted, wanted = gather(scores.detach().argmax(1)).tolist(), gather(labels).tolist()
    return float(sum(p == w for p, w in zip(predicted, wanted, strict=True)) / len(wanted))


def gather_all(values: Tensor) -> Tensor:
    """The values of all ranks, one after the other."""
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values.contiguous())
    return torch.cat(parts)

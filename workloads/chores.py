"""Python of a script beside its training: moving averages, statistics of parameters, logging, gradients one by one."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ddprof.workloads.amounts import Amount
from ddprof.workloads.job import Place

DECAY = 0.999
DECAYS = 4  # averages that are kept; more of them would take the memory of as many models
MAX_NORM = 1.0
SELDOM = 1000  # steps


class Chores:
    """Work of the script around the optimizer's step, on all ranks; `first-statistics` on rank 0 alone."""

    def __init__(self, place: Place, model: nn.Module) -> None:
        switches = place.switches
        self.model = model
        self.amount = Amount(switches.delay_s, place)
        self.is_fixed = switches.fixed_by("seldom")
        self.averages = switches.on("moving-average")
        first = place.rank == 0 and switches.on("first-statistics")
        self.statistics = first or switches.on("statistics")
        self.averaged: list[list[Tensor]] = []
        self.clips_each = switches.on("clip-each")
        self.clips_at_once = switches.fixed_by("at-once")
        self.log = Log(switches.delay_s, switches.fixed_by("thread")) if switches.on("sync-log") else None

    def before_step(self) -> None:
        """Gradients are there."""
        if self.clips_each:
            if self.clips_at_once:
                nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
            else:
                clip_each(self.model.parameters())

    def after(self, step: int, loss: Tensor) -> None:
        """The optimizer has stepped."""
        if self.averages and self._is_due(step):
            self.amount.of(lambda number: update_average(self._averaged(number), self.model))
        if self.statistics and self._is_due(step):
            self.amount.of(lambda _: parameter_statistics(self.model))
        if self.log is not None:
            self.log.write({"step": step, "loss": float(loss.detach())})

    def _is_due(self, step: int) -> bool:
        return not self.is_fixed or step % SELDOM == 0

    def _averaged(self, number: int) -> list[Tensor]:
        """The average of a number; several decays are tried at once."""
        if not self.averaged:
            self.averaged = [[p.detach().clone() for p in self.model.parameters()] for _ in range(DECAYS)]
        return self.averaged[number % DECAYS]


@torch.no_grad()
def update_average(averaged: list[Tensor], model: nn.Module) -> None:
    """A moving average over the parameters, tensor by tensor."""
    for kept, parameter in zip(averaged, model.parameters(), strict=True):
        kept.mul_(DECAY)
        kept.add_(parameter.detach() * (1 - DECAY))


@torch.no_grad()
def parameter_statistics(model: nn.Module) -> dict[str, dict[str, float]]:
    """Statistics of every parameter and its gradient, as monitoring collects them."""
    told = {}
    for name, parameter in model.named_parameters():
        for what, values in ((name, parameter.detach()), (f"{name}.grad", parameter.grad)):
            if values is not None:
                told[what] = {
                    "mean": values.mean().item(),
                    "std": values.std().item(),
                    "norm": values.norm().item(),
                    "largest": values.abs().max().item(),
                }
    return told


def clip_each(parameters: Iterable[nn.Parameter]) -> None:
    """Every gradient to a norm of its own."""
    for parameter in parameters:
        nn.utils.clip_grad_norm_([parameter], MAX_NORM)


class Log:
    """Tracking server that answers after `answer_s` seconds; called by the training thread or by a `thread`."""

    def __init__(self, answer_s: float, thread: bool) -> None:
        self.answer_s = answer_s
        self.waiting: queue.SimpleQueue[dict[str, Any]] | None = queue.SimpleQueue() if thread else None
        if thread:
            threading.Thread(target=self._send_all, daemon=True).start()

    def write(self, record: dict[str, Any]) -> None:
        """Log a record."""
        if self.waiting is not None:
            self.waiting.put(record)
        else:
            self.send_record(record)

    def send_record(self, record: dict[str, Any]) -> None:
        """Send it and wait for the answer."""
        json.dumps(record)
        time.sleep(self.answer_s)

    def _send_all(self) -> None:
        while True:
            assert self.waiting is not None
            self.send_record(self.waiting.get())

"""Faults that live between steps: collections that ranks do not share, saves and evaluations that others wait for."""

from __future__ import annotations

import gc
import io
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddprof.workloads.amounts import Amount
from ddprof.workloads.job import Place

GARBAGE_STEP = 50_000
MAX_GARBAGE = 20_000_000
SAVE_EVERY = 2  # steps


class BetweenSteps:
    """Call `after(step)` at the end of every step. `evaluated`: runs the model on a batch that is kept for that."""

    def __init__(self, place: Place, model: nn.Module, evaluated: Callable[[], object] | None = None) -> None:
        switches = place.switches
        self.place = place
        self.model = model
        self.evaluated = evaluated
        self.amount = Amount(SAVE_EVERY * switches.delay_s, place)
        self.ballast: list[Any] = []
        self.writer: threading.Thread | None = None
        self.waits = switches.on("waiting-save", until="never") and not switches.fixed_by("async")
        self.saves = switches.on("checkpoint", until="never") or switches.on("waiting-save", until="never")
        self.evaluates = switches.on("first-evaluates", until="never")
        if switches.on("gc"):
            self.ballast = garbage_for(switches.delay_s)
            gc.disable()

    def after(self, step: int) -> None:
        """Collect, save or evaluate, where the fault wants it now."""
        switches, place = self.place.switches, self.place
        if switches.on("gc", until="together") and step % place.world_size == place.rank:
            gc.collect()
        if step % SAVE_EVERY != SAVE_EVERY - 1:
            return
        if self.saves and place.rank == 0:
            self._save(SAVE_EVERY * switches.delay_s)
        if self.waits:
            dist.barrier()
        if self.evaluates and place.rank == 0 and self.evaluated is not None:
            evaluate(self.model, self.evaluated, self.amount)

    def finish(self) -> None:
        """Wait for a save that is still being written."""
        if self.writer is not None:
            self.writer.join()

    def _save(self, delay_s: float) -> None:
        state = {name: value.detach() for name, value in self.model.state_dict().items()}
        file = SlowFile(delay_s, sum(value.nbytes for value in state.values()))
        if not self.place.switches.fixed_by("async"):
            torch.save(state, file)
            return
        self.finish()
        copied = {name: value.to("cpu", copy=True) for name, value in state.items()}
        self.writer = threading.Thread(target=torch.save, args=(copied, file))
        self.writer.start()


@torch.no_grad()
def evaluate(model: nn.Module, evaluated: Callable[[], object], amount: Amount) -> None:
    """The model on data that was held back."""
    model.eval()
    amount.of(lambda _: evaluated())
    model.train()


class SlowFile(io.BytesIO):
    """Storage that takes `delay_s` seconds for `size_bytes`."""

    def __init__(self, delay_s: float, size_bytes: int) -> None:
        super().__init__()
        self.s_per_byte = delay_s / max(1, size_bytes)
        self.due_s = 0.0

    def write(self, data: Any, /) -> int:
        """Take the bytes, at the pace of the storage."""
        written = super().write(data)
        self.due_s += written * self.s_per_byte
        if self.due_s > 1e-3:
            time.sleep(self.due_s)
            self.due_s = 0.0
        return written


def garbage_for(delay_s: float) -> list[Any]:
    """Long-lived objects in such number that a full collection takes about `delay_s`."""
    ballast: list[Any] = []
    gc.freeze()  # what the interpreter and torch hold already would take longer than the fault
    while True:
        ballast.extend([[i] for i in range(GARBAGE_STEP)])
        started = time.thread_time()
        gc.collect()
        if time.thread_time() - started >= delay_s or len(ballast) > MAX_GARBAGE:
            return ballast

"""Two ranks in step that train with DistributedDataParallel over gloo, and communicate more than they have to; nothing
runs beside communication, so a step without a call is shorter by what the call takes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gloo_traces

STEPS = 4
FORWARD_US, BACKWARD_US, OPTIMIZER_US, CALL_US = 4_000.0, 8_000.0, 1_000.0, 20.0
REDUCE_US, BROADCAST_US, MAP_US, VALUE_US = 1_200.0, 1_000.0, 600.0, 400.0
GRADIENTS = 12  # parameters of the model
ELEMENTS = 2**18


@dataclass(frozen=True)
class Loop:
    """A training loop. `reduced`: backward passes of a step that reduce, the last ones; `buffers`: sent before each
    forward pass; `used`: parameters that get a gradient, where it is searched for others; `norms`, `values`: scalars
    reduced before and after the optimizer; `gathered`, `sent`: elements gathered and broadcast after it; `marked`:
    backward has a range."""

    micro: int = 1
    reduced: int = 1
    buffers: bool = False
    used: int | None = None
    norms: int = 0
    values: int = 0
    gathered: int = 0
    sent: int = 0
    rarely: bool = False  # values only in the first step
    before_backward: int = 0  # scalars reduced between forward and backward
    optimizers: int = 1
    marked: bool = True
    zeroed: bool = False  # gradients, after each pass
    touched: bool = False  # gradients, after each pass
    closure: bool = False  # the optimizer calls the passes, and what follows them

    def written(self, folder: Path) -> Path:
        return gloo_traces.write(folder, [_Rank(rank, self).played() for rank in range(2)])


@dataclass
class _Rank:
    rank: int
    loop: Loop
    now_us: float = 1_000.0
    events: list[dict[str, Any]] = field(default_factory=list)

    def played(self) -> list[dict[str, Any]]:
        for step in range(STEPS):
            begin = self.now_us
            for micro in range(self.loop.micro):
                self._pass(micro >= self.loop.micro - self.loop.reduced, adds=micro > 0 and not self.loop.zeroed)
                if self.loop.touched:
                    self._operator("aten::_foreach_mul_", CALL_US)
                self._called(self.loop.norms, 1, "all_reduce")
            for _ in range(self.loop.optimizers):
                at = begin if self.loop.closure else self.now_us
                self._operator("aten::add_", OPTIMIZER_US)
                self._range("Optimizer.step#SGD.step", at)
                self.now_us += CALL_US
            if step == 0 or not self.loop.rarely:
                self._called(self.loop.values, 1, "all_reduce")
                self._called(min(1, self.loop.gathered), self.loop.gathered, "all_gather")
                self._called(4 * min(1, self.loop.sent), self.loop.sent // 4, "broadcast")
            self._range(f"ProfilerStep#{step}", begin)
        return self.events

    def _pass(self, reduces: bool, adds: bool) -> None:
        loop, at = self.loop, self.now_us
        if loop.buffers:
            self._collective("c10d::broadcast_", "gloo:broadcast", BROADCAST_US, ELEMENTS)
        self._operator("aten::addmm", FORWARD_US)
        if loop.used is not None and reduces:
            self._operator("torch.distributed.ddp.reducer::search_unused_parameters", CALL_US)
        self._range("DistributedDataParallel.forward", at)
        self._called(loop.before_backward, 1, "all_reduce")
        at = self.now_us
        for _ in range(GRADIENTS if loop.used is None else loop.used):
            self._operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 5.0)
            if adds:
                self._add(gloo_traces.operator, "aten::add_", self.now_us - 2.0, 1.0)
        if reduces:  # called as the last gradients come, waited for after the engine's last node
            messages = [(REDUCE_US, ELEMENTS), *([(MAP_US, GRADIENTS)] if loop.used is not None else [])]
            called_us, done_us = self.now_us + BACKWARD_US - 100.0, self.now_us + BACKWARD_US
            for dur_us, elements in messages:
                done_us = self._ran("c10d::allreduce_", "gloo:all_reduce", called_us, done_us, dur_us, elements)
                called_us += 2 * CALL_US
        self._operator("autograd::engine::evaluate_function: MmBackward0", BACKWARD_US)
        self.now_us = done_us if reduces else self.now_us
        if loop.marked:
            self._range("ddprof::backward", at)
        self.now_us += CALL_US

    def _called(self, calls: int, elements: int, name: str) -> None:
        for _ in range(calls):
            at = self.now_us
            self._collective(f"c10d::{name.replace('_', '')}_", f"gloo:{name}", VALUE_US, elements)
            self._range(f"ddprof::collective.{name}", at)
            self.now_us += CALL_US

    def _collective(self, call: str, executed: str, dur_us: float, elements: int) -> None:
        self.now_us = self._ran(call, executed, self.now_us, self.now_us + CALL_US / 2, dur_us, elements)

    def _ran(self, call: str, executed: str, called_us: float, start_us: float, dur_us: float, elements: int) -> float:
        """A collective that is called and later runs. Returns its end."""
        args = {"Input Dims": [[elements]], "Input type": ["float"]}
        self._add(gloo_traces.operator, call, called_us, CALL_US)
        self._add(gloo_traces.transfer, executed, start_us, dur_us, **args)
        return start_us + dur_us

    def _operator(self, name: str, dur_us: float) -> None:
        self._add(gloo_traces.operator, name, self.now_us, dur_us)
        self.now_us += dur_us

    def _range(self, name: str, since_us: float) -> None:
        self._add(gloo_traces.annotation, name, since_us, self.now_us - since_us)

    def _add(self, make: Any, name: str, ts_us: float, dur_us: float, **args: Any) -> None:
        self.events.append(make(self.rank, name, ts_us, dur_us, **args))

"""Starts capture, with the appliers, in a process that is to apply fixes or to end after some steps. Called by the
shim's sitecustomize in place of bootstrap.
"""

from __future__ import annotations

import atexit
import hashlib
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

from ddprof.capture import bootstrap
from ddprof.capture.applying.finished import GradientCompressionApplier, PrefetchApplier
from ddprof.capture.applying.loaders import LoaderSettingsApplier
from ddprof.capture.applying.model_calls import AutocastApplier, CompileApplier
from ddprof.capture.applying.optimizers import OptimizerSettingsApplier, ZeroGradApplier
from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.applying.process import ProcessSettings
from ddprof.capture.applying.wrappers import (
    DdpSettingsApplier,
    DeepSpeedSettingsApplier,
    Fsdp1SettingsApplier,
    Fsdp2SettingsApplier,
)
from ddprof.capture.describe.model import FSDP2_MODULES
from ddprof.capture.hub import Hub
from ddprof.capture.identity import joined
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.session import Session
from ddprof.settings.wanted import unpacked

_APPLIERS = (
    LoaderSettingsApplier,
    DdpSettingsApplier,
    Fsdp1SettingsApplier,
    OptimizerSettingsApplier,
    ZeroGradApplier,
    DeepSpeedSettingsApplier,
    GradientCompressionApplier,
)
# The module that has a wrapper, its class ("": a function) and what makes it.
_WRAPPERS = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel", "__init__"),
    *((module, "", "fully_shard") for module in FSDP2_MODULES),
)
_CHUNK = 1 << 22  # elements that are worked on at once: 32 MiB as whole numbers
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 over the golden ratio, as a signed number: neighbours weigh differently
_SAMPLED_TENSORS, _SAMPLED_VALUES = 256, 16


class TrialEnd(Instrumentor):
    """Records the rank's trained state after a number of steps, and ends the script: on every rank between the same two
    steps, as `sys.exit(0)` there would.

    The number is known in advance, so the ranks need not agree on anything: each has called the same collectives by
    then, and none waits for another. `finally` blocks and `atexit` functions of the script run, its loaders end their
    workers.
    """

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._steps = hub.config.end_after
        self._held: dict[str, Any] | None = None
        self._loss: Any = None
        self._has_ended = False

    def _install(self, module: ModuleType) -> None:
        torch: Any = module
        self.patches.before(torch.autograd, "backward", self.hub.guard.wrap(self._keep))
        # After the functions that the script registers, which may still need its groups.
        atexit.register(self.hub.guard.wrap(self._take_down_groups))

    def step_begins(self, number: int) -> None:
        """End the script after the last step; again at every later one, where the script goes on all the same."""
        if number >= self._steps:
            self._end(number)

    def recorded(self) -> dict[str, Any]:
        """`trial`: the rank's trained state; null before."""
        return {"trial": self._held}

    def _end(self, number: int) -> NoReturn:
        if not self._has_ended:
            self._has_ended = True
            self._held = self.hub.guard.attempt("what the rank holds", lambda: self._holds(number))
        raise SystemExit(0)

    def _holds(self, number: int) -> dict[str, Any]:
        _wait_for_device()  # collectives that were only issued so far are made: no peer waits for them
        began_ns = time.perf_counter_ns()
        optimizers = self.hub.observed.living_optimizers()
        attempt = self.hub.guard.attempt
        return {
            "steps": number,
            "loss": attempt("loss", lambda: _finite(self._loss)),
            "parameters": attempt("parameters", lambda: held_parameters(optimizers)),
            "took_ns": time.perf_counter_ns() - began_ns,
        }

    def _keep(self, tensors: Any, *_: Any, **__: Any) -> None:
        """Keep the last number that a backward pass began with; it is read only at the end."""
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if getattr(first, "numel", int)() == 1:
            self._loss = first.detach()

    def _take_down_groups(self) -> None:
        """Destroy process groups as the end of the script would have done."""
        if self._has_ended and (distributed := joined()) is not None:
            distributed.destroy_process_group()


def _finite(number: Any) -> float | None:
    value = float("nan") if number is None else float(number)
    return value if math.isfinite(value) else None


def _wait_for_device() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif hasattr(torch, "accelerator") and torch.accelerator.is_available():
        torch.accelerator.synchronize()


def held_parameters(optimizers: Iterable[Any]) -> dict[str, Any]:
    """All parameters of these optimizers, each once, in order; of a sharded one this rank's part.

    `digest` is worked out where the tensors are; one number of each leaves the device. Raises RuntimeError where torch
    cannot read a tensor.
    """
    torch = sys.modules["torch"]
    with torch.no_grad():
        tensors = list(_local(optimizers))
        sums = [_checksum(torch, tensor) for tensor in tensors]
        fetched = [int(value) for value in torch.stack([s.cpu() for s in sums]).tolist()] if sums else []
        sample = _sample(torch, tensors)
    shapes = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors]
    return {
        "tensors": len(tensors),
        "size_bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "digest": hashlib.sha256(repr((shapes, fetched)).encode()).hexdigest()[:32],
        "sample": sample,
    }


def _local(optimizers: Iterable[Any]) -> Iterator[Any]:
    seen = set[int]()
    for optimizer in optimizers:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                tensor = parameter.detach()
                yield tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _checksum(torch: Any, tensor: Any) -> Any:
    """The sum of all elements' bits, each times a weight of its place, modulo 2**64. The weights are odd, so a change
    of one element always shows.
    """
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for start, bits in _bits(torch, tensor):
        place = torch.arange(start, start + bits.numel(), dtype=torch.int64, device=tensor.device)
        total += (bits.to(torch.int64) * (place * _ODD).bitwise_or_(1)).sum()
    return total


def _bits(torch: Any, tensor: Any) -> Iterator[tuple[int, Any]]:
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    for start in range(0, flat.numel(), _CHUNK):
        yield start, flat[start : start + _CHUNK].view(whole)


def _sample(torch: Any, tensors: Sequence[Any]) -> list[float]:
    """Values spread over the tensors, and within each of them: the same places in every run."""
    real = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    chosen = real[:: -(-len(real) // _SAMPLED_TENSORS)] if real else []
    values: list[float] = []
    for tensor in chosen:
        flat = tensor.reshape(-1)
        values += flat[:: -(-flat.numel() // _SAMPLED_VALUES)].to(torch.float32).cpu().tolist()
    return [value if abs(value) < 1e300 else 0.0 for value in values]


def start(settings: str, torch: ModuleType) -> Session:
    """Session of `bootstrap.start` that also applies fixes and ends the script. Raises ValueError on bad settings."""
    return bootstrap.start(settings, torch, more)


def more(hub: Hub) -> list[Instrumentor]:
    """Instrumentors that the settings require."""
    instrumentors = _appliers(hub) if hub.config.apply else []
    return [*instrumentors, TrialEnd(hub)] if hub.config.end_after else instrumentors


def _appliers(hub: Hub) -> list[Instrumentor]:
    """Appliers for the fixes' kinds of object, and the recorder of all outcomes. Raises ValueError on bad settings."""
    outcomes = Outcomes(unpacked(hub.config.apply))
    wanted = {target for fix in outcomes.fixes for target in fix.targets}
    appliers: list[Instrumentor] = [applier(hub, outcomes) for applier in _APPLIERS if applier.target in wanted]
    if Fsdp2SettingsApplier.target in wanted:
        appliers += [Fsdp2SettingsApplier(hub, outcomes, module) for module in FSDP2_MODULES]
    if PrefetchApplier.target in wanted:
        appliers += [PrefetchApplier(hub, outcomes, module) for module in FSDP2_MODULES]
    for applier in (CompileApplier, AutocastApplier):  # in this order: what is compiled is called under autocast
        if applier.target in wanted:
            appliers += [applier(hub, outcomes, *wrapper) for wrapper in _WRAPPERS]
    return [*appliers, ProcessSettings(hub, outcomes)]

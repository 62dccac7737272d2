"""Burdens that make a rank late: a host busy or asleep between operators, a device that computes more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ddprof.workloads.amounts import Amount
from ddprof.workloads.job import Place


def burden(place: Place, modules: Sequence[nn.Module], heavy: nn.Module | None = None) -> None:
    """Attach the faults slow-host, sleepy-host and slow-rank to this rank's model.

    The host's delay is spread over `modules`; `heavy` (default: the first of them) computes again without effect.
    """
    switches = place.switches
    if switches.here("slow-host", until="host"):
        delay_host(modules, switches.delay_s, busy=True)
    if switches.here("sleepy-host", until="host"):
        delay_host(modules, switches.delay_s, busy=False)
    if switches.here("slow-rank", until="device"):
        Repeats(heavy or modules[0], place)


def delay_host(modules: Sequence[nn.Module], delay_s: float, busy: bool) -> None:
    """Before each module runs, the host computes something else (or sleeps); `delay_s` seconds per step in all."""
    share_s = delay_s / len(modules)
    for module in modules:
        module.register_forward_pre_hook(lambda *_: spin(share_s) if busy else time.sleep(share_s))


def spin(seconds: float) -> None:
    """Plain Python for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(200))


class Repeats:
    """Runs a module again before its own forward, without effect, for about `delay_s` seconds per step."""

    def __init__(self, module: nn.Module, place: Place) -> None:
        self.amount = Amount(place.switches.delay_s, place)
        module.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        with torch.no_grad():
            self.amount.of(lambda _: module.forward(*given, **named))

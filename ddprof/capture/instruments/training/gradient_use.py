"""Parameters without a gradient when their optimizer stepped, in the steps of a window.

A parameter without one in all of these is watched for some more steps, as a head may be trained now and then. In the
first of them it is seen, too, whether anything zeroes gradients between two steps of an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.instruments.training.replicas import is_graph_captured, is_readable, sample

_MAX_PARAMETERS = 8192  # of one optimizer
_MAX_OPTIMIZERS = 16  # one for each parameter where they step inside backward
_MAX_STEPS = 64  # of one optimizer in one window
_MAX_NAMED = 128  # of one optimizer
_KEPT_STEPS = 3  # after a window, in which gradients are looked at before each backward pass
_KEPT_PARAMETERS = 8  # of one optimizer
_FOLLOWED_STEPS = 100  # optimizer steps after a window in which what had no gradient may still get one


class _Kept:
    """Some gradients of one optimizer after its step, and whether anything zeroes them before its next one."""

    def __init__(self) -> None:
        self.watched_steps = self.kept_steps = 0
        self._held: list[tuple[Any, Any]] = []  # parameter, some numbers of its gradient
        self._is_kept: bool | None = None  # None: no backward pass since the step

    def stepped(self, optimizer: Any) -> None:
        """Count the step by what the backward passes before it met, and keep gradients for the next one."""
        if self._is_kept is not None:
            self.watched_steps += 1
            self.kept_steps += self._is_kept
        with_gradient = (p for _, p in _trained(optimizer) if p.grad is not None and is_readable(p.grad))
        some = [(p, sample(p.grad.detach()).clone()) for p in islice(with_gradient, _KEPT_PARAMETERS)]
        self._held = [(p, numbers) for p, numbers in some if numbers.any()]
        self._is_kept = None

    def pass_begins(self) -> None:
        """Look whether a backward pass adds to the kept gradients, or, later, to others that are not zero."""
        if self._is_kept is None and self._held:
            self._is_kept = all(p.grad is not None and sample(p.grad.detach()).equal(of) for p, of in self._held)
        elif self._is_kept:
            self._is_kept = all(p.grad is not None and bool(p.grad.any()) for p, _ in self._held)


class _Use:
    """Gradients of one optimizer's parameters at its steps. Places number its parameters through all groups."""

    def __init__(self, optimizer: Any, line: Any) -> None:
        self.kind, self.line = type(optimizer).__name__, line
        self.steps: list[int] = []
        self.count = 0
        self.missing: dict[int, list[int]] = {}  # place -> steps without a gradient
        self.unused: set[int] = set()  # places without one in every step so far
        self.names: dict[int, str] = {}
        self.sizes: dict[int, int] = {}
        self.stateful = False  # the optimizer keeps state for what it updates
        self.updated: set[int] = set()  # of the missing ones those for which it does: they had a gradient before
        self.followed = 0
        self.kept = _Kept()

    def look(self, optimizer: Any, step: int) -> None:
        """Record the parameters without a gradient now; ignore a step in which none has one."""
        places = list(_trained(optimizer))
        without = [at for at, parameter in places if parameter.grad is None]
        if len(without) == len(places) or len(self.steps) >= _MAX_STEPS:
            return
        self.unused = self.unused.intersection(without) if self.steps else set(without)
        self.steps.append(step)
        self.count = len(places)
        for at in without:
            self.missing.setdefault(at, []).append(step)

    def follow(self, optimizer: Any) -> bool:
        """After the window: count a parameter as used once it has a gradient. Returns whether to look again."""
        self.unused -= {at for at, p in _trained(optimizer) if at in self.unused and p.grad is not None}
        if self.followed <= _KEPT_STEPS and not is_graph_captured():
            self.kept.stepped(optimizer)
        self.followed += 1
        return self.is_followed

    @property
    def is_followed(self) -> bool:
        """True while more steps may tell more."""
        return self.followed <= _KEPT_STEPS or (bool(self.unused) and self.followed < _FOLLOWED_STEPS)

    def describe(self, optimizer: Any, names: dict[int, str]) -> None:
        """Keep names and sizes of the parameters without a gradient, and which of them have optimizer state."""
        state = optimizer.state
        self.stateful = any(bool(state.get(parameter)) for _, parameter in _trained(optimizer))
        for at, parameter in _trained(optimizer):
            if at in self.missing and len(self.names) < _MAX_NAMED:
                shape = "x".join(map(str, parameter.shape))
                self.names[at] = names.get(id(parameter), f"{self.kind}[{at}] ({shape})")
                self.sizes[at] = parameter.numel()
                if state.get(parameter):
                    self.updated.add(at)

    def record(self) -> dict[str, Any]:
        """The entry for the sidecar."""
        return {
            "optimizer": self.kind,
            "line": self.line,
            "steps": self.steps,
            "followed": self.followed,
            "parameters": self.count,
            "missing": [
                {
                    "name": name,
                    "elements": self.sizes[at],
                    "steps": self.missing[at],
                    "never": at in self.unused and at not in self.updated,
                }
                for at, name in self.names.items()
            ],
            "left_out": len(self.missing) - len(self.names),
            "stateful": self.stateful,
            "watched_steps": self.kept.watched_steps,
            "kept_steps": self.kept.kept_steps,
        }


def _trained(optimizer: Any) -> Iterator[tuple[int, Any]]:
    """(place, parameter) of the parameters that require a gradient and of which this rank holds a part."""
    every = (parameter for group in optimizer.param_groups for parameter in group["params"])
    for at, parameter in enumerate(every):
        if at >= _MAX_PARAMETERS:
            return
        if parameter.requires_grad and parameter.numel():
            yield at, parameter


class GradientUse(Instrumentor):
    """Watches optimizer steps in a window, and after it while they can still change the result."""

    def _install(self, module: ModuleType) -> None:
        self._uses: dict[int, _Use] = {}
        self._open = False

    def _uninstall(self) -> None:
        self._watch(False)

    def window_opened(self, first_step: int, last_step: int) -> None:
        """Look at every optimizer step from now on."""
        self._uses = {}
        self._open = True
        self._watch(True)

    def _stepped(self, optimizer: Any) -> None:
        """Check the gradients at an optimizer step."""
        use = self._uses.get(id(optimizer))
        if not self._open:
            if use is not None and not use.follow(optimizer):
                self._watch(self._is_worth_it())
            return
        if use is None:
            use = self._uses[id(optimizer)] = _Use(optimizer, self.hub.observed.made_at(optimizer))
        use.look(optimizer, self.hub.tracker.index)

    def window_closed(self) -> None:
        """Name the parameters without a gradient."""
        if not self._open:
            return
        self._open = False
        observed = self.hub.observed
        if any(use.missing for use in self._uses.values()):
            named = [pair for _, model in reversed(observed.models()) for pair in model.named_parameters()]
            names = {id(parameter): name.removeprefix("module.") for name, parameter in named}
            for optimizer in observed.living_optimizers():
                if id(optimizer) in self._uses:
                    self._uses[id(optimizer)].describe(optimizer, names)
        self._watch(self._is_worth_it())

    def _is_worth_it(self) -> bool:
        return any(use.is_followed for use in self._uses.values())

    def _pass_begins(self) -> None:
        for use in () if self._open or is_graph_captured() else self._uses.values():
            use.kept.pass_begins()

    def _watch(self, wanted: bool) -> None:
        self.hub.observed.watch_steps(self._stepped, wanted)
        self.hub.observed.watch_passes(self._pass_begins, wanted)

    def recorded(self) -> dict[str, Any]:
        """`gradients`: one entry per optimizer that stepped in the last window, those with missing gradients first."""
        uses = [use for use in getattr(self, "_uses", {}).values() if use.steps]
        return {"gradients": [use.record() for use in sorted(uses, key=lambda use: not use.missing)[:_MAX_OPTIMIZERS]]}

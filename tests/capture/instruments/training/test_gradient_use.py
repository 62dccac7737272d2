"""Parameters without a gradient: looked at in windows, and a while after them."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.describe.observed import Observed
from ddprof.capture.guard import Guard
from ddprof.capture.instruments.training.gradient_use import _FOLLOWED_STEPS, GradientUse

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")


class Loop:
    """A model of a used and an unused layer and its optimizer, with the instrument watching."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "idle": torch.nn.Linear(2, 3)})
        self.optimizer = make(self.model.parameters())
        self.hub: Any = SimpleNamespace(guard=Guard(), observed=Observed(Guard()), tracker=SimpleNamespace(index=0))
        self.hub.observed.saw_root("module", self.model)
        self.hub.observed.saw_optimizer(self.optimizer, lambda _: None)
        self.use = GradientUse(self.hub)
        self.use.install(torch)

    def step(self, *layers: str) -> None:
        self.optimizer.zero_grad()
        if layers:
            sum(self.model[name](torch.ones(1, 2)).sum() for name in layers).backward()  # type: ignore[union-attr]
        self.optimizer.step()
        for watch in list(self.hub.observed.step_watchers):
            watch(self.optimizer)
        self.hub.tracker.index += 1

    def window(self, *steps: tuple[str, ...]) -> None:
        self.use.window_opened(0, len(steps))
        for layers in steps:
            self.step(*layers)
        self.use.window_closed()

    def never(self) -> list[str]:
        return [m["name"] for m in self.record["missing"] if m["never"]]

    @property
    def record(self) -> dict[str, Any]:
        (found,) = self.use.recorded()["gradients"]
        return dict(found)


sgd, adam = partial(torch.optim.SGD, lr=0.1), torch.optim.AdamW


@pytest.mark.parametrize("make", [sgd, adam])
def test_a_layer_without_gradients_is_named(make: Callable[[Any], Any]) -> None:
    loop = Loop(make)
    loop.window(("used",), ("used",), ())  # a step without any gradient says nothing
    assert loop.never() == ["idle.weight", "idle.bias"]
    assert loop.record["steps"] == [0, 1] and loop.record["parameters"] == 4
    assert loop.record["stateful"] == (make is adam)


def test_what_gets_a_gradient_once_is_used_frozen_parameters_want_none_and_watching_ends() -> None:
    loop = Loop(sgd)
    loop.window(("used",), ("used",))
    loop.step("used", "idle")
    assert loop.never() == [] and loop.hub.observed.step_watchers == []
    assert {m["name"]: m["steps"] for m in loop.record["missing"]} == {"idle.weight": [0, 1], "idle.bias": [0, 1]}
    loop = Loop(adam)
    loop.step("used", "idle")
    loop.window(("used",))
    assert loop.never() == []
    loop = Loop(sgd)
    loop.window(("used", "idle"))
    assert loop.hub.observed.step_watchers == [] and loop.record["missing"] == []
    loop.window(("used",))
    for _ in range(_FOLLOWED_STEPS):
        assert loop.hub.observed.step_watchers
        loop.step("used")
    assert loop.hub.observed.step_watchers == []
    loop = Loop(sgd)
    loop.model["idle"].requires_grad_(False)
    loop.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.empty(0))]})  # a shard that lies elsewhere
    loop.window(("used",))
    assert loop.record["missing"] == []

"""Optimizer steps that raise: torch calls no hook after them, and the script may go on."""

from collections.abc import Iterator
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.describe.observed import Observed
from ddprof.capture.guard import Guard
from ddprof.capture.instruments.optimizer import OptimizerSteps

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")


class Outer(torch.optim.SGD):  # type: ignore[misc]
    """An optimizer whose step runs others, its own base's among them. It goes on where they raise."""

    inner: Any = None

    def step(self, closure: Any = None) -> None:
        try:
            (self.inner.step if self.inner else super().step)(closure)
        except KeyError:
            return


def failing() -> None:
    raise KeyError


class Seen:
    def __init__(self) -> None:
        self.open = 0
        self.stepped: list[Any] = []

    def count(self, change: int) -> None:
        self.open += change

    def whole(self) -> list[Any]:
        """The optimizers that have stepped since the last call; no step is open."""
        stepped = [self.stepped.pop(0) for _ in range(len(self.stepped))]
        assert self.open == 0
        return stepped


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    phases = {"begin": lambda phase: made.count(1), "end": lambda phase, token: made.count(-1)}
    steps = {"optimizer_begins": lambda _: None, "optimizer_stepped": made.stepped.append}
    with installed(OptimizerSteps(make_hub(observed=Observed(Guard()), **phases, **steps)), torch):
        yield made


def test_a_step_that_raised_ends_before_the_next_one_or_with_the_one_around_it(seen: Seen) -> None:
    first, second, outer = (cls([torch.zeros(1)], lr=0.1) for cls in (torch.optim.SGD, torch.optim.SGD, Outer))
    for following in (first, second):
        with pytest.raises(KeyError):
            first.step(failing)
        following.step()
        assert seen.whole() == [following]
    outer.inner = second
    outer.step(failing)
    assert seen.whole() == [outer]


def test_a_step_inside_another_is_not_one_of_its_own(seen: Seen) -> None:
    first, outer = torch.optim.SGD([torch.zeros(1)], lr=0.1), Outer([torch.zeros(1)], lr=0.1)
    outer.step()
    assert seen.whole() == [outer]
    outer.inner = first
    outer.step()
    assert seen.whole() == [outer]

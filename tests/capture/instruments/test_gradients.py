"""Gradients are timed in the last step of a window, and only there."""

from types import SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.instruments.gradients import GradientTimes
from ddprof.capture.journal import Journal

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("first_step", "last_step"), [(5, 7), (5, 5)])
def test_only_the_last_step_of_a_window_is_hooked(first_step: int, last_step: int) -> None:
    torch = pytest.importorskip("torch")
    model, journal = torch.nn.Linear(2, 2), Journal()
    observed = SimpleNamespace(ddp_model=lambda: SimpleNamespace(module=model), frameworks=["ddp"])
    hub: Any = SimpleNamespace(observed=observed, journal=journal)
    gradients = GradientTimes(hub)
    gradients.install(torch)
    gradients.window_opened(first_step, last_step)
    for step in range(first_step, last_step + 1):
        assert bool(gradients._handles) == (step == last_step)
        model(torch.ones(1, 2)).sum().backward()
        gradients.step_ended(step)
    gradients.window_closed()
    assert not gradients._handles and journal.gradient_ready is not None
    assert journal.gradient_ready["step"] == last_step
    assert sorted(entry["name"] for entry in journal.gradient_ready["parameters"]) == ["bias", "weight"]

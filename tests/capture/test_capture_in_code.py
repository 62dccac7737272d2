"""`with ddprof.capture():` in a script, under a real `ddprof run`."""

import sys
from pathlib import Path

import pytest
from runs import good_run

pytestmark = pytest.mark.torch

SCRIPT = """
import ddprof, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
train(12)
with ddprof.capture(steps=50):
    train(4)
train(12)
with ddprof.capture():
    pass
train(3)
"""


def test_the_steps_inside_are_traced_and_no_others(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    (sidecar,) = good_run(tmp_path / "runs", [sys.executable, str(script)], "--mode", "monitor").sidecars
    (window,) = sidecar["windows"]
    assert window["reason"] == "ddprof.capture"
    assert (window["first_step"], window["last_step"]) == (12, 15), window
    assert any("no step began inside it" in note for note in sidecar["notes"])

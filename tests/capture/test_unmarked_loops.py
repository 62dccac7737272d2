"""Loops without a torch optimizer, and scripts that mark or capture their steps themselves, under a real ddprof run."""

import sys
from pathlib import Path
from typing import Any

import pytest
from runs import SCRIPTS, Captured, good_run, read_json

pytestmark = pytest.mark.torch


STEPS = 24  # as in scripts/unmarked.py
# kind -> how many steps are counted: those before the repetition was noticed are one
COUNTED = {
    **dict.fromkeys(("by_hand", "by_hand_no_loader"), STEPS - 1),
    **dict.fromkeys(("functional", "embedding"), STEPS - 7),
    "inference": STEPS - 3,  # two calls of the model per batch
    "lbfgs": STEPS,
    "marked": STEPS + 2,  # the first call comes after three batches, which optimizers parted
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    command = [sys.executable, str(SCRIPTS / "unmarked.py"), *COUNTED]
    return good_run(tmp_path_factory.mktemp("unmarked"), command, "--skip", "3", "--steps", "3")


def sidecar(run: Captured, kind: str) -> dict[str, Any]:
    (found,) = (one for one in run.sidecars if one["models"] and one["models"][0]["class"] == kind)
    return found


@pytest.mark.parametrize("kind", COUNTED)
def test_every_iteration_is_a_step(run: Captured, kind: str) -> None:
    seen = sidecar(run, kind)
    assert seen["steps_total"] == COUNTED[kind] and seen["windows"][0]["trace_path"]
    assert seen["windows"][0]["last_step"] - seen["windows"][0]["first_step"] == 2
    marked_otherwise = [note for note in seen["notes"] if "mark the steps" in note]
    assert bool(marked_otherwise) == (kind not in ("lbfgs", "marked"))


def test_a_named_part_of_a_step_is_in_the_trace(run: Captured) -> None:
    path = Path(sidecar(run, "marked")["windows"][0]["trace_path"])
    names = [event.get("name") for event in read_json(run.folder / path.name)["traceEvents"]]
    assert names.count("moving average") >= 3


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

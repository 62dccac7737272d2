"""Ways to train that torch itself has, their steps and phases counted exactly, and loops without an optimizer."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from runs import SCRIPTS, Captured, forked, good_run, read_json

from ddprof.analyzers.engine import analyze

pytestmark = pytest.mark.torch

STEPS = 10  # of every kind in scripts/framework.py
WINDOW = 3  # steps 3, 4, 5 of each kind

# kind -> how often each phase runs in one step
USUAL = {"data": 1, "forward": 1, "backward": 1, "optimizer": 1}
MICRO = {"data": 3, "forward": 3, "backward": 3, "optimizer": 1}
PIPE = {"data": 1, "forward": 4, "backward": 4, "optimizer": 1}
GROUPS: dict[str, dict[str, dict[str, int]]] = {
    "data parallel": {
        "no_loader": {"data": 0, "forward": 1, "backward": 1, "optimizer": 1},
        "ddp": USUAL,
        "accumulation": MICRO,
        "no_sync": MICRO,
        "activation_checkpointing": USUAL,
        "two_optimizers": {"data": 1, "forward": 6, "backward": 2, "optimizer": 2},
    },
    "wrapped": {"wrapped_ddp": USUAL},
    "sharded": {"fsdp1": USUAL, "hsdp": USUAL, "fsdp2": USUAL},
    "compiled": {"compiled": USUAL},
    "tensor parallel": {"tensor_parallel": USUAL},
    "pipelines": {"gpipe": PIPE, "1f1b": PIPE, "interleaved": {"data": 1, "forward": 8, "backward": 8, "optimizer": 1}},
}


def phases_per_window(run: Captured, rank: int) -> list[dict[str, int]]:
    """Our ranges in each window's trace, divided by its steps."""
    found = []
    for path in sorted(run.folder.glob(f"rank{rank}.*.pt.trace.json.gz")):
        names = Counter(event.get("name", "") for event in read_json(path)["traceEvents"])
        assert sum(count for name, count in names.items() if name.startswith("ProfilerStep#")) == WINDOW
        counts = {phase: names[f"ddprof::{phase}"] for phase in USUAL}
        assert all(count % WINDOW == 0 for count in counts.values()), counts
        found.append({phase: count // WINDOW for phase, count in counts.items()})
    return found


MARKED = [pytest.param(name, marks=[pytest.mark.slow] * (name == "compiled")) for name in GROUPS]


@pytest.fixture(scope="module", params=MARKED)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Captured]:
    """All kinds of a group, one after another in the same job, with one window in each."""
    out = tmp_path_factory.mktemp("frameworks")
    options = ("--skip", "3", "--steps", str(WINDOW), "--every", str(STEPS))
    return request.param, good_run(out, forked("framework.py", *GROUPS[request.param]), *options)


def test_steps_and_phases_are_exact_and_training_that_is_right_has_no_remarks(group: tuple[str, Captured]) -> None:
    name, run = group
    assert "ddprof: capture is off" not in run.output
    for rank, sidecar in enumerate(run.sidecars):
        assert sidecar["steps_total"] == STEPS * len(GROUPS[name])
        assert phases_per_window(run, rank) == list(GROUPS[name].values())
    assert [report.training.remarks for report in analyze([run.folder])] == [()]


def test_sidecar_knows_the_parallelism(group: tuple[str, Captured]) -> None:
    name, run = group
    others = {"sharded": ["fsdp"], "compiled": ["compiled", "ddp"], "tensor parallel": ["tp"], "pipelines": ["pp"]}
    for rank, sidecar in enumerate(run.sidecars):
        assert sidecar["parallelism"] == others.get(name, ["ddp"])
        assert sidecar["optimizer"]["class"] in ("Adam", "AdamW", "SGD")  # of the kinds that are still alive
        if name == "sharded":
            known = {"version": 2, "units": 3, "sharding_strategy": "FULL_SHARD", "reshard_after_forward": True}
            assert {key: sidecar["fsdp"][key] for key in known} == known and sidecar["parameters"]["sharded"] is True
        if name == "wrapped":
            assert sidecar["ddp"]["bucket_sizes_bytes"]
        if name == "data parallel":
            assert sidecar["skipped_optimizer_steps"] == 1
            assert [model["kind"] for model in sidecar["models"]] == ["ddp"] * 7  # a GAN has two
            assert all(model["parameters"]["count"] and model["settings"] for model in sidecar["models"])
        if name == "pipelines":
            assert sidecar["pipeline"]["microbatches"] == 4 and sidecar["pipeline"]["stage_indices"][0] == rank


ITERATIONS = 24  # as in scripts/unmarked.py
# kind -> how many steps are counted: those before the repetition was noticed are one
COUNTED = {
    **dict.fromkeys(("by_hand", "by_hand_no_loader"), ITERATIONS - 1),
    **dict.fromkeys(("functional", "embedding"), ITERATIONS - 7),
    "inference": ITERATIONS - 3,  # two calls of the model per batch
    "lbfgs": ITERATIONS,
    "marked": ITERATIONS + 2,  # the first call comes after three batches, which optimizers parted
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
    assert any("mark the steps" in note for note in seen["notes"]) == (kind not in ("lbfgs", "marked"))


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
    (sidecar,) = good_run(tmp_path, [sys.executable, "-c", SCRIPT], "--mode", "monitor").sidecars
    (window,) = sidecar["windows"]
    assert window["reason"] == "ddprof.capture"
    assert (window["first_step"], window["last_step"]) == (12, 15), window
    assert any("no step began inside it" in note for note in sidecar["notes"])

"""Trainers built on torch, where they are installed: steps and phases counted exactly on two real ranks."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest
from ddprof.analyzers.engine import Options, analyze
from runs import SCRIPTS, TORCHRUN, Captured, ddprof_run

pytestmark = [pytest.mark.torch, pytest.mark.slow]

STEPS = 12
PER_WINDOW = {"data": 6, "forward": 6, "backward": 6, "optimizer": 3}  # three steps of two accumulated batches


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("transformers", ["trainer"]),
        ("accelerate", ["accelerate"]),
        ("lightning", ["lightning"]),
        ("deepspeed", ["deepspeed", "0"]),
        ("deepspeed", ["deepspeed", "1"]),
        ("deepspeed", ["deepspeed", "2"]),
        ("deepspeed", ["deepspeed", "3"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else value,
)
def test_steps_and_phases_are_exact(tmp_path: Path, package: str, arguments: list[str]) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    launcher = [sys.executable] if package == "lightning" else TORCHRUN  # Lightning starts its second rank itself
    command = [*launcher, str(SCRIPTS / "external.py"), *arguments]
    run = ddprof_run(tmp_path, command, "--skip", "3", "--steps", "3", DS_ACCELERATOR="cpu")
    assert run.code == 0, run.output
    assert run.manifest["ranks"] == [0, 1]
    _is_analyzed(run, unsharded=package == "deepspeed")
    for rank, sidecar in enumerate(run.sidecars):
        assert sidecar["steps_total"] == STEPS
        assert sidecar["notes"] == []
        assert sidecar["optimizer"]["class"] == "AdamW"
        assert sidecar["dataloader"]["batch_size"] == 4
        names = Counter(run.names(rank))
        assert {phase: names[f"ddprof::{phase}"] for phase in PER_WINDOW} == PER_WINDOW
        if package == "deepspeed":
            assert sidecar["deepspeed"]["zero_stage"] == int(arguments[1])
        else:
            assert sidecar["parallelism"] == ["ddp"]


def _is_analyzed(run: Captured, unsharded: bool) -> None:
    """The engine reads the run; of what a toy model on busy cores can show, only the samples are certain."""
    (report,) = analyze([run.folder], Options(cache=False))
    assert report.steps.count == 3
    assert not [note for note in report.health if note.severity == "error"]
    assert any(finding.id == "input.unsharded" for finding in report.findings) == unsharded

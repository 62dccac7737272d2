"""Batches made by operators of the training thread, and what looks like it."""

from pathlib import Path

import pytest
from kineto_run import Script
from labelled_runs import Runs


def prepared_us(script: Script, folder: Path) -> float:
    start, end = script.facts(folder).spans_of("dataloader").bounds
    return float((end - start).sum()) / 1e3


def steps(script: Script, count: int, *, before: tuple[str, ...] = (), copies: bool = True, after: str = "") -> Script:
    """Steps of five kernels; operators on the CPU, 400 us and 50 us of Python each, `before` them, and one `after`."""
    for _ in script.steps(count):
        for name in before:
            script.host(name, 400.0)
            script.idle(50.0)
        if copies:
            script.copy(1_000_000)
        script.launch(dur_us=300.0, times=5)
        if after:
            script.host(after, 2_000.0)
        script.idle(20.0)
    return script


def test_operators_before_the_copy_of_a_batch_make_it_and_short_ones_do_not(tmp_path: Path) -> None:
    made = steps(Script(), 4, before=("aten::_upsample_bicubic2d_aa", "aten::sub", "aten::stack"))
    assert prepared_us(made, tmp_path) == pytest.approx(4 * (3 * 400 + 2 * 50), abs=1)
    script = Script()
    for _ in script.steps(4):
        for _ in range(20):
            script.host("aten::view", 6.0)
        script.copy(1_000_000)
        script.launch(dur_us=300.0)
    assert prepared_us(script, tmp_path) == 0.0


@pytest.mark.parametrize(
    "healthy",
    [
        {"before": ("aten::stack",), "copies": False},  # nothing is copied to the device: no batch
        {"after": "aten::_adam_on_the_cpu"},  # an optimizer that runs on the CPU
        {},
    ],
)
def test_other_work_of_the_cpu_makes_no_batch(tmp_path: Path, healthy: dict[str, object]) -> None:
    assert prepared_us(steps(Script(), 4, **healthy), tmp_path) == 0.0  # type: ignore[arg-type]


def test_a_labelled_run_is_named_and_priced(labelled: Runs) -> None:
    run = labelled("batches made in the loop")
    finding = run.report.findings[0]
    assert finding.id == "input.starved" and "operators on the CPU" in finding.summary
    left_us = run.report.steps.wall_us - finding.recoverable_us.value
    assert left_us == pytest.approx(run.fault["counterfactual_step_us"], rel=0.03)

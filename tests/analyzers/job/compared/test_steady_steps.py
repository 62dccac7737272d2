"""What occurs once is in no average: start-up, the profiler's edges, one long event; what recurs is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import retold
from labelled_runs import Labelled, Runs
from retold import Events

STEP_US = 23_000.0  # about the step of clean.ddp, which has three


def told(
    labelled: Runs, folder: Path, *changes: Callable[[Sequence[Events]], None], name: str = "clean.ddp"
) -> Labelled:
    """A labelled run with changes made to its files."""

    def all_of(ranks: Sequence[Events]) -> None:
        for change in changes:
            change(ranks)

    source = labelled(name)
    return Labelled(name, source.label, retold.retell(source.traces, folder / "traces", all_of))


def left_out(run: Labelled) -> list[int]:
    """Positions of the steps that were left out."""
    numbers = [step.number for step in run.job.left_out]
    first = min([*numbers, int(run.job.ranks[0].steps["index"][0])])
    return [number - first for number in numbers]


ONCE = {
    "a module loads": ("launch", 0, "loading code"),
    "the context is created": ("cudaFree", 0, "first allocations"),
    "another first call creates it": ("cudaHostRegister", 0, "creating contexts"),
    "the profiler starts": ("open", 0, "the start of the profiler"),
    "the profiler stops": ("close", 2, "the end of the profiler"),
}


@pytest.mark.parametrize("length_us", [0.4 * STEP_US, 3 * STEP_US, 200 * STEP_US])
@pytest.mark.parametrize("cost", ONCE)
def test_a_step_with_a_cost_that_occurs_once_is_left_out(
    labelled: Runs, tmp_path: Path, cost: str, length_us: float
) -> None:
    where, step, words = ONCE[cost]
    run = told(labelled, tmp_path, retold.held_up(step, length_us, where))
    assert left_out(run) == [step]
    assert words in run.job.left_out[0].why
    assert run.report.steps.wall_us == pytest.approx(labelled("clean.ddp").report.steps.wall_us, rel=0.02)
    assert run.report.steps.count == 2
    assert not [f for f in run.report.findings if run.report.severity_of(f) != "info"]
    (note,) = [item for item in run.report.health if "occurred once" in item.effect]
    assert note.severity == "info" and words in note.issue


def test_start_up_and_both_edges_of_the_profiler_at_once(labelled: Runs, tmp_path: Path) -> None:
    changes = [retold.held_up(0, 9e5, "launch"), retold.held_up(0, 6e4, "open"), retold.held_up(2, 1e5, "close")]
    run = told(labelled, tmp_path, *changes)
    assert left_out(run) == [0, 2]
    assert run.report.steps.count == 1


@pytest.mark.parametrize("where", ["launch", "cudaFree", "cudaMalloc"])
def test_a_cost_of_every_step_stays(labelled: Runs, tmp_path: Path, where: str) -> None:
    run = told(labelled, tmp_path, *(retold.held_up(step, 9e3, where) for step in range(3)))
    assert not run.job.left_out
    assert run.report.steps.count == 3


def test_one_pause_without_a_name_longer_than_all_other_steps_is_left_out(labelled: Runs, tmp_path: Path) -> None:
    held = retold.held_up(1, 30 * STEP_US, "cudaStreamSynchronize")
    run = told(labelled, tmp_path, held)
    assert left_out(run)[0] in (0, 1) and 1 in left_out(run)
    assert run.report.steps.wall_us == pytest.approx(labelled("clean.ddp").report.steps.wall_us, rel=0.02)


@pytest.mark.parametrize(
    "name", ["host.checkpoint", "host.gc", "input.starved", "host.allocator", "straggler.imbalance"]
)
def test_what_recurs_or_may_recur_stays_in_the_average(labelled: Runs, name: str) -> None:
    assert not labelled(name).job.left_out


def test_counts_are_those_of_the_steps_that_stay(labelled: Runs, tmp_path: Path) -> None:
    run, whole = told(labelled, tmp_path, retold.held_up(0, 9e5, "launch")), labelled("clean.ddp")
    assert run.measures.kernels_per_step.tolist() == whole.measures.kernels_per_step.tolist()
    assert run.measures.gemm_us == pytest.approx(whole.measures.gemm_us, rel=0.02)
    assert run.measures.optimizer_kernels.tolist() == whole.measures.optimizer_kernels.tolist()
    assert run.report.replay.error == pytest.approx(0, abs=0.01)

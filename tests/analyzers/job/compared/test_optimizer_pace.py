"""Slow cores are told from larger batches where nothing counted the batches."""

from dataclasses import replace
from pathlib import Path

import pytest
from gloo_traces import TENSOR, Events, annotation, in_steps, operator, transfer

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.compared.optimizer_pace import passes_over_optimizer
from ddprof.analyzers.job.feed import is_fed_more

PASS_US, UPDATE_US = 20_000.0, 2_000.0


def two_ranks(folder: Path, passes: float, update: float, shapes: bool = False) -> LoadedRun:
    """Rank 1 takes so many times as long for its passes and for its optimizer."""
    given = TENSOR if shapes else {}

    def play(rank: int, began: float) -> Events:
        pass_us, update_us = PASS_US * (passes if rank else 1.0), UPDATE_US * (update if rank else 1.0)
        called, met = began + 100 + pass_us, began + 200 + PASS_US * max(passes, 1.0) + 500
        return [
            operator(rank, "aten::linear", began + 50, pass_us, **given),
            operator(rank, "c10d::allreduce_", called, 50, **TENSOR),
            transfer(rank, "gloo:all_reduce", called + 10, met - called - 10, **TENSOR),
            annotation(rank, "Optimizer.step#SGD.step", met + 20, update_us + 40),
            operator(rank, "aten::_foreach_add_", met + 40, update_us, **given),
        ]

    return in_steps(folder, 5, (PASS_US + UPDATE_US) * max(passes, update) + 2_000.0, play)


@pytest.mark.parametrize(
    ("passes", "update", "identifier"), [(1.8, 1.0, "straggler.imbalance"), (1.8, 1.8, "straggler.compute")]
)
def test_a_larger_batch_leaves_the_optimizer(tmp_path: Path, passes: float, update: float, identifier: str) -> None:
    run = two_ranks(tmp_path / "run", passes, update)
    assert passes_over_optimizer(run.job.ranks) == pytest.approx([1.0, passes / update], rel=0.02)
    assert is_fed_more(run.job.ranks, run.measures.work.factor).tolist() == [False, identifier == "straggler.imbalance"]
    found = run.report.ranked_findings()[0]
    assert (found.id, found.ranks) == (identifier, (1,))
    assert not any("nvidia" in (fix.patch or "") for fix in found.fixes)


def test_shapes_tell_it_better_and_a_short_optimizer_tells_nothing(tmp_path: Path) -> None:
    assert passes_over_optimizer(two_ranks(tmp_path / "shapes", 1.8, 1.0, shapes=True).job.ranks) is None
    ranks = two_ranks(tmp_path / "none", 1.8, 1.0).job.ranks
    assert passes_over_optimizer([replace(facts, phases=facts.phases.take([])) for facts in ranks]) is None
    assert passes_over_optimizer(ranks[:1]) is None

"""Hosts that run ahead of their device are judged like others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import corpus
import pytest
from labelled_runs import drawn

from benchmarks.oracle import kinds
from benchmarks.oracle.spec import Scenario
from ddprof.analyzers.facts.early import is_early


def small(name: str) -> Scenario:
    """A run of the corpus whose script never waits for the device."""
    found = corpus.EVERY[name]
    return replace(found, steps=4, model=replace(found.model, sync="none"))


def of_kind(kind: str) -> Scenario:
    return kinds.scenario(161_100, kind, run_ahead=True)


@pytest.mark.parametrize(
    ("made", "kind"),
    [(small, kind) for kind in ("straggler.compute", "pipeline.imbalance", "comm.latency_bound", "clean.ddp")]
    + [
        pytest.param(of_kind, kind, marks=pytest.mark.slow)
        for kind in ("straggler.compute", "pipeline.imbalance", "comm.latency_bound", "clean.plain")
    ],
)
def test_run_ahead_jobs_are_judged_like_others(made: Callable[[str], Scenario], kind: str, tmp_path: Path) -> None:
    run = drawn(made(kind), tmp_path)
    assert any(is_early(facts.device_ops).any() for facts in run.job.ranks)
    score = run.score
    assert score.right and score.bound_right, score
    assert score.replay_error is not None and score.replay_error < 0.005, score
    assert score.ledger_error is not None and score.ledger_error < 0.01, score

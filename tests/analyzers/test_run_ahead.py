"""Hosts that run ahead of their device are judged like others."""

from __future__ import annotations

from pathlib import Path

import pytest
from labelled_runs import Labelled

from benchmarks.oracle.kinds import scenario
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write
from ddprof.analyzers.facts.early import is_early


@pytest.mark.parametrize("kind", ["straggler.compute", "pipeline.imbalance", "comm.latency_bound", "clean.plain"])
def test_run_ahead_jobs_are_judged_like_others(kind: str, tmp_path: Path) -> None:
    found = scenario(161_100, kind, run_ahead=True)
    run = Labelled(kind, write(simulate(found), tmp_path), tmp_path / "traces")
    assert any(is_early(facts.device_ops).any() for facts in run.job.ranks)
    score = run.score
    assert score.right and score.bound_right, score
    assert score.replay_error is not None and score.replay_error < 0.005, score
    assert score.ledger_error is not None and score.ledger_error < 0.01, score

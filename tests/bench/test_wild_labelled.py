"""Labelled messy runs made by others: their labels are read, and what came out right once stays right."""

from pathlib import Path

import pytest

from benchmarks.scoring.run_score import RunScore
from benchmarks.scoring.score import Score, labels, score_run

RIGHT = (
    "03_clean_fsdp4_ahead", "08_slowgpu_ddp4_ahead", "09_starved_ddp2_ahead_compiled_nested",
    "10_loaderstrag_fsdp4_foreign_partial", "13_imbalance_ddp8_shifted_varlen", "16_cpustalls_small4_nomarks_stacks",
    "18_clean_small4_accum_lost",
)  # fmt: skip


@pytest.fixture(scope="module")
def scores(shared_dir: Path) -> dict[str, RunScore]:
    folder = shared_dir / "wild" / "labelled"
    if not folder.is_dir():
        pytest.skip("the labelled messy runs are not among the real traces")
    return {path.parent.name: score_run(path) for path in labels(folder)}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_stays_right(scores: dict[str, RunScore], name: str) -> None:
    assert scores[name].right, scores[name]


def test_every_mess_has_a_row(scores: dict[str, RunScore]) -> None:
    rows = {row["mess"]: row for row in Score(tuple(scores.values())).messes()}
    assert {"cold", "prof", "ahead", "rdv", "lost", "unrelated", "truncated"} <= set(rows)
    assert sum(bool(run.mess) for run in scores.values()) == len(scores)
    assert not any(run.problem and "independent" not in run.problem for run in scores.values())

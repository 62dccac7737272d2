"""What ranks were fed: bytes copied to their devices where the capture counted no elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from kineto_run import Script

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.feed import fed_ratio, is_fed_more


def rank(folder: Path, number: int, size_bytes: int) -> RankFacts:
    script = Script()
    for step in range(3):
        begin = script.now_us
        if size_bytes:
            script.copy(size_bytes)
        script.launch()
        script.step(step + 1, begin)
    return script.facts(folder, number, 3)


def test_a_larger_batch_explains_longer_work(tmp_path: Path) -> None:
    ranks = [rank(tmp_path, n, size) for n, size in enumerate((1_000, 1_500, 1_000))]
    assert fed_ratio(ranks).tolist() == [1.0, 1.5, 1.0]
    assert is_fed_more(ranks, np.array([1.0, 1.5, 1.3])).tolist() == [False, True, False]


def test_a_little_more_does_not_explain_much_more_time(tmp_path: Path) -> None:
    ranks = [rank(tmp_path, n, size) for n, size in enumerate((1_000, 1_050, 1_000))]
    assert not is_fed_more(ranks, np.array([1.0, 1.5, 1.0])).any()


def test_nothing_is_known_where_nothing_was_copied(tmp_path: Path) -> None:
    ranks = [rank(tmp_path, n, size) for n, size in enumerate((1_000, 0))]
    assert np.isnan(fed_ratio(ranks)).all()
    assert not is_fed_more(ranks, np.array([1.0, 2.0])).any()

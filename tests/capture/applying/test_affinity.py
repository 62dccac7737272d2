"""Cores shared out among the ranks of a host."""

from __future__ import annotations

import os

import pytest

from ddprof.capture.applying.affinity import in_order, share


@pytest.mark.parametrize(
    ("cores", "ranks", "expected"),
    [
        (range(8), 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (range(5), 2, [[0, 1], [2, 3, 4]]),
        (range(2), 2, [[0], [1]]),
        (range(2), 4, [[], [], [], []]),
    ],
)
def test_every_core_has_one_rank_at_most(cores: range, ranks: int, expected: list[list[int]]) -> None:
    assert [list(share(list(cores), rank, ranks)) for rank in range(ranks)] == expected


def test_usable_cores_are_kept_and_a_rank_too_many_gets_none() -> None:
    usable = os.sched_getaffinity(0)
    assert set(in_order(usable)) == usable
    assert share([0, 1, 2, 3], 2, 2) == ()

"""The collectives' laws on a cluster's links."""

import pytest

from ddprof.slices.planning.cluster import cluster

A100 = cluster("A100-80GB")


def test_rings_move_their_share() -> None:
    size = 1e9
    inside, across = A100.reduce_s(size, 8, 8), A100.reduce_s(size, 64, 8)
    assert inside == pytest.approx(2 * 7 / 8 * size / (300e9 * 0.8) + 2 * 20e-6, rel=1e-6)
    assert across > inside and A100.gather_s(size, 8, 8) == pytest.approx(inside / 2)
    assert A100.rate(64, 1) == pytest.approx(200e9 / 8 * 0.8)
    assert A100.reduce_s(size, 1, 8) == 0.0

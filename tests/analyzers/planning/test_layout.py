"""The estimated step of a layout: the bubble is its formula."""

from __future__ import annotations

import pytest

from ddprof.analyzers.planning.cluster import cluster
from ddprof.analyzers.planning.layout import Layout, estimate
from ddprof.analyzers.planning.shape import Shape

A100 = cluster("A100-80GB")


def test_the_bubble_is_its_formula() -> None:
    shape = Shape(20e9, 48, 6144, 2048)
    plain = estimate(shape, A100, Layout(2, 1, 4, 1, 1), 32)
    interleaved = estimate(shape, A100, Layout(2, 1, 4, 1, 2), 32)
    ideal = plain.compute_s + plain.tensor_s
    assert plain.bubble_s == pytest.approx(ideal * 3 / 16, rel=1e-6)
    assert interleaved.bubble_s == pytest.approx(plain.bubble_s / 2, rel=0.05)

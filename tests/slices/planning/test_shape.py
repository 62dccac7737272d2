"""Parameters, states and operations of a transformer: the papers' formulas and tables."""

import pytest

from ddprof.slices.planning.shape import Shape, parameters_of, state_bytes


@pytest.mark.parametrize(("stage", "gigabytes"), [("ddp", 120), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9)])
def test_state_is_the_zero_papers_figure_1(stage: str, gigabytes: float) -> None:
    """7.5 B parameters, 64 ranks, K = 12."""
    assert state_bytes(7.5e9, stage, 64) / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_operations_are_megatrons_formula() -> None:
    """96 B s L h^2 (1 + s / 6h + V / 16 L h) with full recomputation, equation 3."""
    layers, h, s, v = 80, 12288, 2048, 51_200
    exact = 96 * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    shape = Shape(parameters_of(layers, h, v), layers, h, s, v)
    assert shape.executed_flops("full") == pytest.approx(exact, rel=0.01)
    assert shape.model_flops() == pytest.approx(exact * 3 / 4, rel=0.01)

"""The estimated step of a layout: published runs are met, and the bubble is its formula."""

import numpy as np
import pytest
from published import RUNS, error, modelled

from ddprof.slices.planning.cluster import cluster
from ddprof.slices.planning.layout import BAND, Layout, estimate
from ddprof.slices.planning.shape import Shape

A100 = cluster("A100-80GB")


def test_the_bubble_is_its_formula() -> None:
    shape = Shape(20e9, 48, 6144, 2048)
    plain = estimate(shape, A100, Layout(2, 1, 4, 1, 1), 32)
    interleaved = estimate(shape, A100, Layout(2, 1, 4, 1, 2), 32)
    ideal = plain.compute_s + plain.tensor_s
    assert plain.bubble_s == pytest.approx(ideal * 3 / 16, rel=1e-6)
    assert interleaved.bubble_s == pytest.approx(plain.bubble_s / 2, rel=0.05)


def test_published_runs_are_met() -> None:
    errors = np.abs([error(run) for run in RUNS])
    assert errors.mean() <= 0.05 and errors.max() <= BAND
    assert all(modelled(run).fits for run in RUNS)


def test_published_utilization_follows_from_the_iteration_times() -> None:
    """Korthikanti et al. 2022, table 5: seconds per iteration; model FLOPs by their equation 7 (appendix A)."""
    seconds = {22e9: 1.10, 175e9: 13.75, 530e9: 37.83, 1000e9: 71.49}
    checked = [run for run in RUNS if run.recompute == "selective"]
    assert len(checked) == len(seconds)
    for run in checked:
        layers, h, s, v = run.layers, run.hidden, 2048, 51_200
        flops = 72 * run.batch * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers))
        assert flops / seconds[run.params] / run.devices / 312e12 == pytest.approx(run.utilization, rel=0.005)

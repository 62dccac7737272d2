"""Published runs against the model of a step."""

from __future__ import annotations

import numpy as np
import pytest

from ddprof.analyzers.planning.layout import BAND
from ddprof.analyzers.planning.published import RUNS, error, modelled


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

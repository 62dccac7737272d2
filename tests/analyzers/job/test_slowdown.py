"""A slow device is measured, and nobody else."""

from __future__ import annotations

import numpy as np
import pytest
from labelled_runs import Runs


def test_slowdown_measures_the_slow_device_and_nobody_else(labelled: Runs) -> None:
    factor = labelled("straggler.compute").measures.compute.factor
    typical = float(np.median(factor))
    assert factor[2] / typical == pytest.approx(1.3, abs=0.03)
    assert np.abs(np.delete(factor, 2) / typical - 1).max() < 0.02

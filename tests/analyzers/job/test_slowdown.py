"""A slow device is measured, and nobody else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.slowdown import BESIDE, _contended, interference


def test_slowdown_measures_the_slow_device_and_nobody_else(labelled: Runs) -> None:
    factor = labelled("straggler.compute").measures.compute.factor
    typical = float(np.median(factor))
    assert factor[2] / typical == pytest.approx(1.3, abs=0.03)
    assert np.abs(np.delete(factor, 2) / typical - 1).max() < 0.02


def test_kernels_that_take_no_time_alone_say_nothing_of_interference(labelled: Runs) -> None:
    ranks = labelled("straggler.compute").job.ranks
    timeless = []
    for facts in ranks:
        ops = facts.device_ops
        beside = _contended(facts, np.arange(len(ops))) > BESIDE
        timeless.append(replace(facts, device_ops=ops.replace(end_ns=np.where(beside, ops["end_ns"], ops["start_ns"]))))
    assert interference(timeless) == 0.0

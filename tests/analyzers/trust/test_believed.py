"""The range of a prediction: around it, wider with the doubt, and no step below what nothing removes."""

import pytest
from labelled_runs import Runs

from ddprof.analyzers.trust.believed import believed, of_step
from ddprof.findings import Change

CHANGES = (Change("no_sync"),)


def test_a_range_grows_with_the_doubt_up_to_the_floor_and_down_to_nothing(labelled: Runs) -> None:
    prices = labelled("host.sync").pricer
    step_us, floor_us = prices.measures.step_us, prices.floor_us(CHANGES)
    gain_us = (step_us - floor_us) / 2
    narrow, wide, widest = (believed(prices, CHANGES, gain_us, doubt_us) for doubt_us in (50.0, 150.0, step_us))
    assert narrow.low < gain_us < narrow.high
    assert (narrow.low - wide.low, wide.high - narrow.high) == pytest.approx((100.0, 100.0))
    assert (widest.low, widest.high) == pytest.approx((0.0, step_us - floor_us))


def test_a_loss_has_a_range_too(labelled: Runs) -> None:
    prices = labelled("clean.ddp").pricer
    step_us = prices.measures.step_us
    low_us, high_us = of_step(prices, CHANGES, step_us + 1_000.0, 100.0)
    assert step_us < low_us < step_us + 1_000.0 < high_us

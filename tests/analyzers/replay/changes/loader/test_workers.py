"""The loader's queue against its closed form."""

import numpy as np
import pytest

from ddprof.analyzers.replay.changes.loader.workers import queued_step_ns


@pytest.mark.parametrize(
    ("workers", "step", "in_turn"), [(0, 400, 400), (1, 300, 300), (2, 150, 200), (3, 100, 200), (8, 100, 200)]
)
def test_the_queues_step_is_its_closed_form(workers: int, step: float, in_turn: float) -> None:
    """max(t_step, t_batch / W), in series without workers; with 200 us of 300 behind a lock no less than these."""
    costs = [np.array([300e3]), np.array([60e3])]
    assert queued_step_ns(100e3, costs, workers, 2, np.array([70e3, 70e3])) == pytest.approx(step * 1e3, rel=0.01)
    found = queued_step_ns(100e3, [np.array([300e3])], workers, 2, np.array([100e3]), np.array([200e3]))
    assert found == pytest.approx(in_turn * 1e3, rel=0.01)


def test_prefetch_covers_slow_batches_and_other_work_a_late_loader() -> None:
    costs, busy = [np.array([60e3]), np.zeros(1)], np.array([20e3, 90e3])
    assert queued_step_ns(100e3, costs, 0, 2, busy) == pytest.approx(100e3)
    uneven = [np.array([50e3] * 9 + [600e3])]
    deep, shallow = (queued_step_ns(100e3, uneven, 2, prefetch, np.array([100e3])) for prefetch in (8, 1))
    assert deep < shallow

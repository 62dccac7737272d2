"""The loader's queue against its closed form."""

import numpy as np
import pytest

from ddprof.analyzers.replay.changes.loader.workers import queued_step_ns


@pytest.mark.parametrize(("workers", "step"), [(0, 100 + 300), (1, 300), (2, 150), (3, 100), (8, 100)])
def test_the_queues_step_is_its_closed_form(workers: int, step: float) -> None:
    """max(t_step, t_batch / W), and everything in series without workers."""
    costs = [np.array([300e3]), np.array([60e3])]
    assert queued_step_ns(100e3, costs, workers, 2, np.array([70e3, 70e3])) == pytest.approx(step * 1e3, rel=0.01)


def test_prefetch_covers_slow_batches_and_other_work_a_late_loader() -> None:
    costs, busy = [np.array([60e3]), np.zeros(1)], np.array([20e3, 90e3])
    assert queued_step_ns(100e3, costs, 0, 2, busy) == pytest.approx(100e3)
    uneven = [np.array([50e3] * 9 + [600e3])]
    deep, shallow = (queued_step_ns(100e3, uneven, 2, prefetch, np.array([100e3])) for prefetch in (8, 1))
    assert deep < shallow


@pytest.mark.parametrize(("workers", "step"), [(0, 100 + 300), (1, 300), (2, 200), (4, 200), (8, 200)])
def test_workers_that_take_turns_deliver_no_faster_than_one_turn_each(workers: int, step: float) -> None:
    """max(t_step, t_batch / W, t_turn): 200 us of the 300 are behind a lock."""
    found = queued_step_ns(100e3, [np.array([300e3])], workers, 2, np.array([100e3]), np.array([200e3]))
    assert found == pytest.approx(step * 1e3, rel=0.01)

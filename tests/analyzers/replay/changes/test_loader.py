"""Cost of a batch, the number of workers that it requires, and the loader's queue against its closed form."""

from types import SimpleNamespace

import numpy as np
import pytest

from ddprof.analyzers.replay.changes.loader import fetch_costs, needed_workers, queued_step_ns
from ddprof.sidecar import CpuTime, CpuWaits, TimedFetches


@pytest.mark.parametrize(
    ("batch_us", "pace_us", "workers"), [(50.0, 100.0, 1), (100.0, 100.0, 2), (390.0, 100.0, 6), (9000.0, 100.0, 108)]
)
def test_workers_are_asked_for_with_a_fifth_to_spare(batch_us: float, pace_us: float, workers: int) -> None:
    assert needed_workers(batch_us, pace_us) == workers


def test_a_batch_fetched_in_turn_costs_what_the_shortest_fetch_took() -> None:
    costs = fetch_costs(rank(TimedFetches(2, 800, 16, (400, 800, 1200), cpu_ns=4, turn_ns=400)), 2)
    assert costs is not None and (costs.mean_ns, costs.turn_ns, costs.kind) == (400.0, 400.0, "wait")


def rank(timed: TimedFetches, waits: CpuWaits | None = None) -> SimpleNamespace:
    return SimpleNamespace(sidecar=SimpleNamespace(fetching=timed, cpu_waits=waits or CpuWaits()))


@pytest.mark.parametrize(("cpu_ns", "kind"), [(62, "cpu"), (4, "wait")])
def test_computing_on_a_busy_machine_is_not_waiting_for_storage(cpu_ns: int, kind: str) -> None:
    """The rank has a core for a twelfth of the time in which it wants one."""
    timed = TimedFetches(2, 1000, 16, cpu_ns=cpu_ns)
    busy = CpuWaits(run=CpuTime(dur_ns=12_000, cpu_ns=1000, waited_ns=11_000))
    assert fetch_costs(rank(timed, busy), 2).kind == kind and fetch_costs(rank(timed), 2).kind == "wait"


@pytest.mark.parametrize(
    ("workers", "step", "in_turn"), [(0, 400, 400), (1, 300, 300), (2, 150, 200), (3, 100, 200), (8, 100, 200)]
)
def test_the_queues_step_is_its_closed_form(workers: int, step: float, in_turn: float) -> None:
    """max(t_step, t_batch / W), in series without workers; with 200 us of 300 behind a lock no less than these."""
    slow = np.array([300e3])
    two = queued_step_ns(100e3, [slow, np.array([60e3])], workers, 2, np.array([70e3, 70e3]))
    locked = queued_step_ns(100e3, [slow], workers, 2, np.array([100e3]), np.array([200e3]))
    assert (two, locked) == pytest.approx((step * 1e3, in_turn * 1e3), rel=0.01)


@pytest.mark.parametrize(("workers", "each_pass", "step"), [(4, 4, 175), (2, 4, 200), (4, 1, 400), (0, 4, 400)])
def test_a_pass_begins_without_batches(workers: int, each_pass: int, step: float) -> None:
    """Each pass of n steps waits for its first batch, with enough workers for (t_batch + n t_step) / n per step."""
    passes = queued_step_ns(100e3, [np.array([300e3])], workers, 2, np.array([100e3]), None, each_pass)
    assert passes == pytest.approx(step * 1e3, rel=0.01)


def test_prefetch_covers_slow_batches_and_other_work_a_late_loader() -> None:
    costs, busy = [np.array([60e3]), np.zeros(1)], np.array([20e3, 90e3])
    assert queued_step_ns(100e3, costs, 0, 2, busy) == pytest.approx(100e3)
    uneven = [np.array([50e3] * 9 + [600e3])]
    deep, shallow = (queued_step_ns(100e3, uneven, 2, prefetch, np.array([100e3])) for prefetch in (8, 1))
    assert deep < shallow

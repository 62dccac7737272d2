"""Cost of a batch, and the number of workers that it requires."""

from types import SimpleNamespace

import pytest

from ddprof.analyzers.replay.changes.loader.fetch_costs import fetch_costs, needed_workers
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

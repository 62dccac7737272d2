"""CPU ranks that share cores: what computing beside communication costs goes when communication does."""

from pathlib import Path

import pytest
from captured import prices_with
from gloo_traces import Events, all_reduce, annotation, in_steps
from overlapped import STEPS, TRANSFER_US, WORK_US, overlapped

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.execution.choose import CPU
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.replay.shared_cores import hosts_sharing_cores
from ddprof.findings import Change

LOAD_US = 30_000.0


def on_cores(run: LoadedRun, cores: int, more_ranks: int = 0) -> Pricer:
    return prices_with(run, {"processors": {"usable": cores, "local_ranks": len(run.job.ranks) + more_ranks}})


def test_work_beside_transfers_speeds_up_as_they_shrink(tmp_path: Path) -> None:
    """Two ranks that compute and two threads that move data on two cores: twice as long as without these."""
    run = overlapped(tmp_path)
    step_us = run.measures.step_us
    half, gone = ((Change("scale_transfer", (), (factor,)),) for factor in (0.5, 0.0))
    plenty, two = on_cores(run, 64), on_cores(run, 2)
    assert plenty.step_us(gone) == pytest.approx(step_us, rel=0.01)  # hidden anyway
    factor = (2 + 2 * CPU.limits.moving_threads) / 2
    assert step_us - two.step_us(gone) == pytest.approx(TRANSFER_US * (1 - 1 / factor), rel=0.1)
    assert 0.3 < (step_us - two.step_us(half)) / (step_us - two.step_us(gone)) < 0.9


def late(folder: Path, others: int) -> LoadedRun:
    """Ranks of which the last loads for 30 ms while the others wait for it; then a collective."""
    period_us = LOAD_US + WORK_US + 1_000

    def play(rank: int, began: float) -> Events:
        loading = LOAD_US if rank == others else 100.0
        batch = annotation(rank, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", began, loading)
        called = began + loading + WORK_US
        return [batch, *all_reduce(rank, called, WORK_US, began + period_us - called)]

    return in_steps(folder, STEPS, period_us, play, others + 1)


def test_ranks_that_no_longer_wait_compute_side_by_side(tmp_path: Path) -> None:
    """Recorded, the late rank had the host to itself; on time it shares it."""
    on_time = (Change("instant_loader"),)
    run = late(tmp_path / "four", 3)
    alone, shared = on_cores(run, 64).step_us(on_time), on_cores(run, 2).step_us(on_time)
    assert alone == pytest.approx(WORK_US + 1_000, rel=0.05)
    assert shared > 1.2 * alone  # four ranks on two cores; three of them shared these in the recording already
    assert on_cores(run, 2).step_us(()) == pytest.approx(run.measures.step_us)
    two = late(tmp_path / "two", 1)
    side_by_side_us = (WORK_US + 1_000) * (1 + CPU.limits.all_cores_excess)
    assert on_cores(two, 2).step_us(on_time) == pytest.approx(side_by_side_us, rel=0.05)


def test_hosts_whose_ranks_are_not_all_traced_are_left_alone(tmp_path: Path) -> None:
    assert hosts_sharing_cores(on_cores(overlapped(tmp_path), 2, more_ranks=1).graph) == ()

"""The step without the profiler: what a fix gains there."""

from pathlib import Path

import numpy as np
import pytest
from step_timers import LOAD_US, STEP_US, TRANSFER_US, WORK_US, loaded, priced

from ddprof.analyzers.execution.choose import CPU
from ddprof.analyzers.job.whole_run.unprofiled_steps import pause_ratios
from ddprof.analyzers.trust.believed import of_candidate
from ddprof.findings import Basis, Candidate, Change

LOADER = Change("instant_loader")


def test_the_profilers_cost_is_taken_from_the_hosts_work_alone(tmp_path: Path) -> None:
    """9 ms less per step, and loading takes as long as before: its removal wins 10 ms of 21, not 7."""
    prices = priced(loaded(tmp_path), [21_000.0] * 12)
    assert prices.unprofiled is not None
    handed_us = CPU.limits.handed_share * TRANSFER_US  # half of a transfer is as fast as the host
    assert prices.unprofiled.ratio == pytest.approx(1 - 9_000.0 / (WORK_US + handed_us), abs=0.01)
    assert prices.unprofiled_us((LOADER,)) == pytest.approx(21_000.0 - LOAD_US, rel=0.03)
    candidate = Candidate("input.starved", "", LOAD_US, Basis.RECORDED, (), (LOADER,))
    gain = prices.unprofiled_gain(candidate, of_candidate(prices, candidate, prices.gain_us(candidate)))
    assert gain is not None and gain.value == pytest.approx(LOAD_US, rel=0.05)
    assert gain.low <= gain.value <= gain.high <= 21_000.0


def test_saves_that_the_trace_lacks_are_no_work_of_the_host(tmp_path: Path) -> None:
    """Every fourth step saves for 100 ms: a loader that nobody waits for wins 10 ms of the mean 55, no more."""
    run, lengths_us = loaded(tmp_path), [STEP_US, STEP_US, STEP_US, STEP_US + 100_000.0] * 6
    ends_us = np.cumsum([90_000.0] * 3 + [STEP_US] * 8 + [500_000.0, *lengths_us])
    saves = [{"start_ns": int((end - 101_000) * 1e3), "dur_ns": 100_000_000} for end in ends_us[15::4].tolist()]
    prices = priced(run, lengths_us, checkpoints=saves)
    assert prices.unprofiled is not None and prices.unprofiled.ratio == pytest.approx(1.0, abs=0.02)
    assert prices.unprofiled.apart_us == pytest.approx(25_000.0, rel=0.01)
    assert prices.unprofiled_us((LOADER,)) == pytest.approx(55_000.0 - LOAD_US, rel=0.02)


def test_a_shorter_pause_wins_less_and_a_step_that_the_host_cannot_explain_is_scaled(tmp_path: Path) -> None:
    run = loaded(tmp_path)
    prices = priced(run, [25_000.0] * 12, data_us=5_000.0)
    assert pause_ratios(prices.graph.ranks[0].facts) == {"dataloader": pytest.approx(0.5)}
    assert prices.unprofiled is not None and prices.unprofiled.ratio == pytest.approx(1.0, abs=0.02)
    assert prices.unprofiled_us((LOADER,)) == pytest.approx(20_000.0, rel=0.03)
    prices = priced(run, [5_000.0] * 12)  # shorter than loading alone
    after = prices.unprofiled_us((LOADER,))
    assert after is not None and 0 < after < 5_000.0
    assert prices.unprofiled_us(()) == pytest.approx(5_000.0)


def test_behind_slow_workers_the_timers_tell_the_hosts_ratio(tmp_path: Path) -> None:
    """A step that waits for its batch is as long at any ratio of the host; beside loading it takes 15 ms of 20."""
    prices = priced(loaded(tmp_path, "_MultiProcessingDataLoaderIter"), [STEP_US] * 12, data_us=15_000.0, workers=1)
    assert prices.unprofiled is not None and prices.unprofiled.ratio == pytest.approx(0.75)
    handed_us = TRANSFER_US * (1 - CPU.limits.handed_share * 0.25)
    assert prices.unprofiled_us((LOADER,)) == pytest.approx(0.75 * WORK_US + handed_us, rel=0.03)

"""The step without the profiler: its slowdown phase by phase and rank by rank, and what a fix gains there."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captured import prices_with
from gloo_traces import Events, all_reduce, annotation, in_steps, operator
from kineto_run import Script
from labelled_runs import run_of
from step_timers import LOAD_US, STEP_US, STEPS, TRANSFER_US, WORK_US, loaded, priced, records

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.execution.choose import CPU
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.job.whole_run.unprofiled_steps import pause_ratios
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.trust.believed import of_candidate
from ddprof.findings import Basis, Candidate, Change

LOADER = Change("instant_loader")


def test_the_profilers_cost_is_taken_from_the_hosts_work_alone(tmp_path: Path) -> None:
    prices = priced(loaded(tmp_path), [21_000.0] * 12)  # 9 ms less, and loading takes as long: it wins 10 ms, not 7
    assert prices.unprofiled is not None
    handed_us = CPU.limits.handed_share * TRANSFER_US  # half of a transfer is as fast as the host
    assert prices.unprofiled.ratio == pytest.approx(1 - 9_000.0 / (WORK_US + handed_us), abs=0.01)
    assert prices.unprofiled_us((LOADER,)) == pytest.approx(21_000.0 - LOAD_US, rel=0.03)
    candidate = Candidate("input.starved", "", LOAD_US, Basis.RECORDED, (), (LOADER,))
    traced = of_candidate(prices, candidate, prices.gain_us(candidate))
    gain, timed = (prices.unprofiled_gain(replace(candidate, timed_us=us), traced) for us in (None, LOAD_US / 2))
    assert gain is not None and gain.value == pytest.approx(LOAD_US, rel=0.05)
    assert gain.low <= gain.value <= gain.high <= 21_000.0
    assert timed is not None and 0 < timed.low < timed.value == timed.high == LOAD_US / 2


def test_saves_that_the_trace_lacks_are_no_work_of_the_host(tmp_path: Path) -> None:
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
    assert after is not None and 0 < after < 5_000.0 and prices.unprofiled_us(()) == pytest.approx(5_000.0)


def test_behind_slow_workers_the_timers_tell_the_hosts_ratio(tmp_path: Path) -> None:
    """A step that waits for its batch is as long at any ratio of the host; beside loading it takes 15 ms of 20."""
    prices = priced(loaded(tmp_path, "_MultiProcessingDataLoaderIter"), [STEP_US] * 12, data_us=15_000.0, workers=1)
    assert prices.unprofiled is not None and prices.unprofiled.ratio == pytest.approx(0.75)
    handed_us = TRANSFER_US * (1 - CPU.limits.handed_share * 0.25)
    assert prices.unprofiled_us((LOADER,)) == pytest.approx(0.75 * WORK_US + handed_us, rel=0.03)


USUAL = {"forward": 10_000.0, "work": 10_000.0, "backward": 20_000.0, "optimizer": 4_000.0}
SLOW = Change("scale_compute", (1,), (2.0,), "peers")
MOVED_US = TRANSFER_US * (1 - CPU.limits.handed_share / 2)
BARE_US = 10_000.0 + MOVED_US + 2_000.0  # without the profiler, from the end of forward
LAUNCHES, LAUNCH_US, KERNEL_US = 60, 100.0, 40.0
LAUNCHING_US, KERNELS_US = LAUNCHES * LAUNCH_US, LAUNCHES * KERNEL_US


def phased(folder: Path, ranks_us: Sequence[dict[str, float]], step_us: float) -> LoadedRun:
    """CPU ranks that work through phases (of `forward` only `work`), and then reduce; who is ready first waits."""
    last_us = max(rank["forward"] + rank["backward"] for rank in ranks_us)

    def play(rank: int, began: float) -> Events:
        took = ranks_us[rank]
        backward, reduced = began + took["forward"], began + last_us + TRANSFER_US
        ready = backward + took["backward"]
        return [
            annotation(rank, "ddprof::forward", began, took["forward"]),
            operator(rank, "aten::conv2d", began, took["work"]),
            annotation(rank, "ddprof::backward", backward, reduced - backward),
            *all_reduce(rank, ready, took["backward"], reduced - ready),
            annotation(rank, "ddprof::optimizer", reduced, took["optimizer"]),
            operator(rank, "aten::add_", reduced, took["optimizer"]),
        ]

    return in_steps(folder, STEPS, step_us, play)


def timed(run: LoadedRun, step_us: tuple[float, float], ranks: Sequence[dict[str, tuple[float, float]]]) -> Pricer:
    """Prices of a run whose ranks timed their phases, each (inside, outside) as `step_us`."""
    timers = (records([step_us[0]] * STEPS, [step_us[1]] * 12, 0.0, **phases) for phases in ranks)
    return prices_with(run, *({"steps": steps} for steps in timers))


def slow_forward(folder: Path, more: dict[str, float]) -> Pricer:
    """Rank 1 spends 70 ms in forward, 65 without the profiler; its peer waits for it in backward."""
    step_us = 70_000.0 + 20_000.0 + TRANSFER_US + 4_000.0
    run = phased(folder, [USUAL, {**USUAL, "forward": 70_000.0, **more}], step_us)
    waits = {"forward": (10_000.0, 5_000.0), "backward": (82_000.0, 71_000.0), "optimizer": (4_000.0, 2_000.0)}
    works = {**waits, "forward": (70_000.0, 65_000.0), "backward": (22_000.0, 10_000.0 + MOVED_US)}
    return timed(run, (step_us, 65_000.0 + BARE_US), [waits, works])


def test_a_rank_of_long_operators_is_not_slowed_by_the_profiler_as_its_peers_are(tmp_path: Path) -> None:
    """Forward of 70 ms takes 65 without the profiler, all else half; one ratio for all would leave 0.82 of 34 ms."""
    prices = slow_forward(tmp_path, {"work": 70_000.0})
    assert prices.unprofiled is not None and prices.unprofiled.ratio == pytest.approx(1.0, abs=0.02)
    first, second = (prices.unprofiled.host[position].ratios for position in (0, 1))
    assert first == {Phase.FORWARD: pytest.approx(0.5), Phase.OPTIMIZER: pytest.approx(0.5)}  # its backward waits
    assert second[Phase.FORWARD] == pytest.approx(65 / 70) and second[Phase.BACKWARD] == pytest.approx(0.5, abs=0.02)
    assert prices.unprofiled_us((SLOW,)) == pytest.approx(5_000.0 + BARE_US, rel=0.05)


def test_neither_sleep_nor_waits_outside_the_windows_tell_the_ratio_of_work(tmp_path: Path) -> None:
    """It sleeps for 60 ms of its forward with the profiler and without: its peer's ratio holds once it does not."""
    prices = slow_forward(tmp_path, {})
    assert prices.unprofiled is not None and Phase.FORWARD not in prices.unprofiled.host[1].ratios
    awake = Change("scale_host", (1,), (6.0,), "peers")
    assert prices.unprofiled_us((awake,)) == pytest.approx(5_000.0 + BARE_US, rel=0.05)
    step_us = 10_000.0 + 20_000.0 + TRANSFER_US + 4_000.0
    run = phased(tmp_path, [USUAL, USUAL], step_us)
    works = {"forward": (10_000.0, 8_000.0), "backward": (22_000.0, 17_600.0), "optimizer": (4_000.0, 3_200.0)}
    prices = timed(run, (step_us, 0.8 * step_us), [works, {**works, "backward": (22_000.0, 44_000.0)}])
    assert prices.unprofiled is not None and set(prices.unprofiled.host[0].ratios) == set(Phase)
    assert set(prices.unprofiled.host[1].ratios) == {Phase.FORWARD, Phase.OPTIMIZER}


def launching(folder: Path, gap_us: float, unprofiled_us: float) -> Pricer:
    """A rank whose host launches too slowly, after a gap in which it launches nothing."""
    script = Script()
    for _ in script.steps(STEPS):
        script.idle(gap_us)
        for _ in range(LAUNCHES):
            script.launch(dur_us=KERNEL_US)
            script.idle(LAUNCH_US - 14.0)
    script.launch()
    steps = records([gap_us + LAUNCHING_US] * STEPS, [unprofiled_us] * 12, 0.0)
    return prices_with(run_of([script.facts(folder)]), {"steps": steps})


@pytest.mark.parametrize("gap_us", [0.0, 4_000.0])
def test_a_host_launches_faster_and_a_long_gap_between_two_launches_stays(tmp_path: Path, gap_us: float) -> None:
    prices = launching(tmp_path, gap_us, gap_us + 0.6 * LAUNCHING_US)
    assert prices.unprofiled is not None and prices.unprofiled.ratio == pytest.approx(0.6, abs=0.02)


def test_no_fix_leaves_less_than_the_kernels_take(tmp_path: Path) -> None:
    """Graphs win 3.6 ms of 6 with the profiler; without it the kernels' 2.4 ms of a step of 3.6 remain."""
    prices = launching(tmp_path, 0.0, 0.6 * LAUNCHING_US)
    change = (Change("graph_launch"),)
    assert (prices.step_us(change), prices.unprofiled_us(change)) == pytest.approx((KERNELS_US, KERNELS_US), rel=0.05)

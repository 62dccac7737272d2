"""The step without the profiler: what its timers say, and what a fix wins there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gloo_traces import TENSOR, Events, annotation, operator, transfer, write

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.job.whole_run.unprofiled_steps import typical_steps, untraced_pauses, untraced_step_us
from ddprof.analyzers.replay.graph.build import build_graph
from ddprof.analyzers.replay.price import Pricer, pricer
from ddprof.analyzers.replay.unprofiled.phases import HANDED_SHARE
from ddprof.findings import Candidate, Change

STEPS, LOAD_US, WORK_US, TRANSFER_US = 8, 10_000.0, 18_000.0, 2_000.0
STEP_US = LOAD_US + WORK_US + TRANSFER_US
LOADER = Change("instant_loader")


def loaded(folder: Path, iterator: str = "_SingleProcessDataLoaderIter") -> LoadedRun:
    """Two gloo ranks: 10 ms of loading in the training process, 18 ms of work, an all-reduce that is waited for."""
    ranks: list[Events] = [[], []]
    for rank, events in enumerate(ranks):
        for step in range(STEPS):
            began = step * STEP_US
            called = began + LOAD_US + WORK_US
            loader = f"enumerate(DataLoader)#{iterator}.__next__"
            events += [
                annotation(rank, f"ProfilerStep#{step}", began, STEP_US),
                annotation(rank, loader, began, LOAD_US),
                operator(rank, "aten::mm", began + LOAD_US, WORK_US - 100),
                operator(rank, "c10d::allreduce_", called - 60, 50, **TENSOR),
                transfer(rank, "gloo:all_reduce", called - 5, TRANSFER_US + 5, **TENSOR),
            ]
    (run,) = load_runs([write(folder, ranks)], Options(cache=False))
    return run


def records(
    traced_us: Sequence[float], untraced_us: Sequence[float], data_us: float, **phases_us: tuple[float, float]
) -> list[dict[str, Any]]:
    """Step records: warm-up, the window, the step in which it is written, then the steps without it.

    `phases_us`: time of a phase inside the window and outside.
    """
    lengths = [(90_000.0, False)] * 3 + [(us, True) for us in traced_us] + [(500_000.0, False)]
    lengths += [(us, False) for us in untraced_us]
    now, found = 0, []
    for index, (us, profiled) in enumerate(lengths):
        end = now + int(us * 1e3)
        load = int((LOAD_US if profiled else data_us) * 1e3)
        phases = {f"{name}_ns": int(us[not profiled] * 1e3) for name, us in phases_us.items()}
        found.append({"index": index, "start_ns": now, "end_ns": end, "data_ns": load, "profiled": profiled, **phases})
        now = end
    return found


def priced(
    run: LoadedRun, untraced_us: Sequence[float], data_us: float = LOAD_US, workers: int = 0, **timed: Any
) -> Pricer:
    steps = records([STEP_US] * STEPS, untraced_us, data_us)
    sidecar = {"steps": steps, "dataloader": {"num_workers": workers}, **timed}
    ranks = tuple(replace(facts, sidecar=sidecar) for facts in run.job.ranks)
    job = replace(run.job, ranks=ranks)
    return pricer(build_graph(job), replace(run.measures, job=job))


def test_the_untraced_step_leaves_warm_up_and_export_out(tmp_path: Path) -> None:
    run = loaded(tmp_path)
    assert untraced_step_us(run.job) is None  # nothing was timed
    assert priced(run, [20_000.0] * 7).untraced is None  # too few to say
    bare = priced(run, [18_000.0, 22_000.0] * 6)
    assert bare.untraced is not None and bare.untraced.step_us == pytest.approx(20_000.0)


def test_the_profilers_cost_is_taken_from_the_hosts_work_alone(tmp_path: Path) -> None:
    """9 ms less per step, and loading takes as long as before: its removal wins 10 ms of 21, not 7."""
    run = loaded(tmp_path)
    prices = priced(run, [21_000.0] * 12)
    assert prices.untraced is not None
    handed_us = HANDED_SHARE * TRANSFER_US  # half of a transfer is as fast as the host
    assert prices.untraced.pace == pytest.approx(1 - 9_000.0 / (WORK_US + handed_us), abs=0.01)
    after = prices.untraced_us((LOADER,))
    assert after == pytest.approx(21_000.0 - LOAD_US, rel=0.03)
    candidate = Candidate("input.starved", "", (), LOAD_US, (LOADER,), 0.9)
    gain = prices.untraced_gain(candidate, prices.interval(candidate, prices.gain_us(candidate)))
    assert gain is not None and gain.value == pytest.approx(LOAD_US, rel=0.05)
    assert gain.low <= gain.value <= gain.high <= 21_000.0


def test_a_pause_that_is_shorter_without_the_profiler_wins_less(tmp_path: Path) -> None:
    run = loaded(tmp_path)
    prices = priced(run, [25_000.0] * 12, data_us=5_000.0)
    assert untraced_pauses(prices.graph.ranks[0].facts) == {"dataloader": pytest.approx(0.5)}
    assert prices.untraced is not None and prices.untraced.pace == pytest.approx(1.0, abs=0.02)
    assert prices.untraced_us((LOADER,)) == pytest.approx(20_000.0, rel=0.03)


def test_a_step_that_the_host_cannot_explain_is_scaled(tmp_path: Path) -> None:
    run = loaded(tmp_path)
    prices = priced(run, [5_000.0] * 12)  # shorter than loading alone
    after = prices.untraced_us((LOADER,))
    assert after is not None and 0 < after < 5_000.0
    assert prices.untraced_us(()) == pytest.approx(5_000.0)


def test_behind_slow_workers_the_timers_tell_the_hosts_pace(tmp_path: Path) -> None:
    """A step that waits for its batch is as long at any pace of the host; beside loading it takes 15 ms of 20."""
    run = loaded(tmp_path, "_MultiProcessingDataLoaderIter")
    prices = priced(run, [STEP_US] * 12, data_us=15_000.0, workers=1)
    assert prices.untraced is not None and prices.untraced.pace == pytest.approx(0.75)
    handed_us = TRANSFER_US * (1 - HANDED_SHARE * 0.25)
    assert prices.untraced_us((LOADER,)) == pytest.approx(0.75 * WORK_US + handed_us, rel=0.03)


def phased(folder: Path, ranks_us: Sequence[dict[str, float]], step_us: float) -> LoadedRun:
    """CPU ranks that work through their phases, sleep for the rest of `forward` after `work`, and then reduce.

    `ranks_us`: forward, work (of it), backward, optimizer; who is ready first waits.
    """
    last_us = max(rank["forward"] + rank["backward"] for rank in ranks_us)
    ranks: list[Events] = [[] for _ in ranks_us]
    for rank, (events, took) in enumerate(zip(ranks, ranks_us, strict=True)):
        for step in range(STEPS):
            began, ready = step * step_us, step * step_us + took["forward"] + took["backward"]
            reduced = began + last_us + TRANSFER_US
            events += [
                annotation(rank, f"ProfilerStep#{step}", began, step_us),
                annotation(rank, "ddprof::forward", began, took["forward"]),
                operator(rank, "aten::conv2d", began, took["work"]),
                annotation(rank, "ddprof::backward", began + took["forward"], reduced - began - took["forward"]),
                operator(rank, "aten::mm", began + took["forward"], took["backward"] - 100),
                operator(rank, "c10d::allreduce_", ready - 60, 50, **TENSOR),
                transfer(rank, "gloo:all_reduce", ready - 5, reduced - ready + 5, **TENSOR),
                annotation(rank, "ddprof::optimizer", reduced, took["optimizer"]),
                operator(rank, "aten::add_", reduced, took["optimizer"]),
            ]
    (run,) = load_runs([write(folder, ranks)], Options(cache=False))
    return run


def timed(run: LoadedRun, step_us: tuple[float, float], ranks: Sequence[dict[str, tuple[float, float]]]) -> Pricer:
    """Prices of a run whose ranks timed their phases, each (inside, outside) as `step_us`."""
    sidecars = [{"steps": records([step_us[0]] * STEPS, [step_us[1]] * 12, 0.0, **phases)} for phases in ranks]
    known = tuple(replace(facts, sidecar=s) for facts, s in zip(run.job.ranks, sidecars, strict=True))
    job = replace(run.job, ranks=known)
    return pricer(build_graph(job), replace(run.measures, job=job))


USUAL = {"forward": 10_000.0, "work": 10_000.0, "backward": 20_000.0, "optimizer": 4_000.0}
SLOW = Change("scale_compute", (1,), (2.0,), "peers")


def test_a_rank_of_long_operators_is_not_slowed_by_the_profiler_as_its_peers_are(tmp_path: Path) -> None:
    """Forward of 70 ms takes 65 without the profiler, its peer's 10 ms take 5, all other phases half: 67 + 12 ms.

    One pace for all would leave 0.82 of the peer's 34 ms.
    """
    repeats = {**USUAL, "forward": 70_000.0, "work": 70_000.0}
    step_us = 70_000.0 + 20_000.0 + TRANSFER_US + 4_000.0
    moved_us = TRANSFER_US * (1 - HANDED_SHARE / 2)
    bare_us = 65_000.0 + 10_000.0 + moved_us + 2_000.0
    run = phased(tmp_path, [USUAL, repeats], step_us)
    waits = {"forward": (10_000.0, 5_000.0), "backward": (82_000.0, 71_000.0), "optimizer": (4_000.0, 2_000.0)}
    works = {**waits, "forward": (70_000.0, 65_000.0), "backward": (22_000.0, 10_000.0 + moved_us)}
    prices = timed(run, (step_us, bare_us), [waits, works])
    assert prices.untraced is not None and prices.untraced.pace == pytest.approx(1.0, abs=0.02)
    first, second = (prices.untraced.host[position].work.paces for position in (0, 1))
    assert first == {Phase.FORWARD: pytest.approx(0.5), Phase.OPTIMIZER: pytest.approx(0.5)}  # its backward waits
    assert second[Phase.FORWARD] == pytest.approx(65 / 70) and second[Phase.BACKWARD] == pytest.approx(0.5, abs=0.02)
    assert prices.untraced_us((SLOW,)) == pytest.approx(5_000.0 + 10_000.0 + moved_us + 2_000.0, rel=0.05)


def test_a_host_that_sleeps_does_not_tell_the_pace_of_its_work(tmp_path: Path) -> None:
    """It sleeps for 60 ms of its forward with the profiler and without: its peer's pace holds once it does not."""
    sleeps = {**USUAL, "forward": 70_000.0}
    step_us = 70_000.0 + 20_000.0 + TRANSFER_US + 4_000.0
    moved_us = TRANSFER_US * (1 - HANDED_SHARE / 2)
    run = phased(tmp_path, [USUAL, sleeps], step_us)
    waits = {"forward": (10_000.0, 5_000.0), "backward": (82_000.0, 71_000.0), "optimizer": (4_000.0, 2_000.0)}
    works = {**waits, "forward": (70_000.0, 65_000.0), "backward": (22_000.0, 10_000.0 + moved_us)}
    prices = timed(run, (step_us, 65_000.0 + 10_000.0 + moved_us + 2_000.0), [waits, works])
    assert prices.untraced is not None
    assert Phase.FORWARD not in prices.untraced.host[1].work.paces
    awake = Change("scale_host", (1,), (6.0,), "peers")
    assert prices.untraced_us((awake,)) == pytest.approx(5_000.0 + 10_000.0 + moved_us + 2_000.0, rel=0.05)


def test_waits_that_only_steps_outside_the_windows_hold_are_no_pace(tmp_path: Path) -> None:
    step_us = 10_000.0 + 20_000.0 + TRANSFER_US + 4_000.0
    run = phased(tmp_path, [USUAL, USUAL], step_us)
    works = {"forward": (10_000.0, 8_000.0), "backward": (22_000.0, 17_600.0), "optimizer": (4_000.0, 3_200.0)}
    waits = {**works, "backward": (22_000.0, 44_000.0)}
    prices = timed(run, (step_us, 0.8 * step_us), [works, waits])
    assert prices.untraced is not None
    assert set(prices.untraced.host[0].work.paces) == set(Phase)
    assert set(prices.untraced.host[1].work.paces) == {Phase.FORWARD, Phase.OPTIMIZER}


def test_odd_blocks_of_steps_count_neither_in_the_step_nor_in_its_parts(tmp_path: Path) -> None:
    """Of eight blocks of four the two shortest and the two longest go; a pause every fourth step counts in part."""
    calm = [20_000.0, 20_000.0, 20_000.0, 28_000.0]
    blocks = [[us / 2 for us in calm]] * 2 + [calm] * 4 + [[us * 3 for us in calm]] * 2
    lengths_us = [us for block in (blocks[i] for i in (2, 0, 6, 3, 1, 4, 7, 5)) for us in block]
    run = loaded(tmp_path)
    prices = priced(run, lengths_us)
    assert prices.untraced is not None and prices.untraced.step_us == pytest.approx(22_000.0)
    assert len(typical_steps(prices.graph.ranks[0].facts)) == 16

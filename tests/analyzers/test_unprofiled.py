"""The step without the profiler: what its timers say, and what a fix wins there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.job.untraced_steps import untraced_pauses, untraced_step_us
from ddprof.analyzers.replay.graph import build_graph
from ddprof.analyzers.replay.phase_pace import HANDED_SHARE
from ddprof.analyzers.replay.price import Pricer, pricer
from gloo_traces import TENSOR, Events, annotation, operator, transfer, write

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


def records(traced_us: Sequence[float], untraced_us: Sequence[float], data_us: float) -> list[dict[str, Any]]:
    """Step records: warm-up, the window, the step in which it is written, then the steps without it."""
    lengths = [(90_000.0, False)] * 3 + [(us, True) for us in traced_us] + [(500_000.0, False)]
    lengths += [(us, False) for us in untraced_us]
    now, found = 0, []
    for index, (us, profiled) in enumerate(lengths):
        end = now + int(us * 1e3)
        load = int((LOAD_US if profiled else data_us) * 1e3)
        found.append({"index": index, "start_ns": now, "end_ns": end, "data_ns": load, "profiled": profiled})
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

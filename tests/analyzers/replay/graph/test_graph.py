"""The graph of a run: anchors of ranks that wait, what a start keeps behind what came before it, backward passes."""

from pathlib import Path

import numpy as np
import pytest
from gloo_traces import TENSOR, Events, all_reduce, annotation, in_steps, operator, transfer
from labelled_runs import Runs

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.execution.operations import NEVER, Operations
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.replay.changes.communication.ddp_buckets import backward_compute_ns, backward_start_ns
from ddprof.analyzers.replay.graph.build import DEFAULT_QUEUE_LAG_NS, _lags, build_graph
from ddprof.analyzers.replay.graph.dependencies import OVERLAP_NS, OVERLAP_WITHOUT_HOST_NS, _coincident
from ddprof.tables import Array

SLEEP_US = 100_000.0
PERIOD_NS, IDLE_NS, COUNT = 1_000_000, 400_000, 12
STEPS, LOAD_US, FORWARD_US, BACKWARD_US, TRANSFER_US, OPTIMIZER_US = 6, 30_000.0, 10_000.0, 20_000.0, 8_000.0, 4_000.0


def two_ranks(folder: Path, stamped_late_us: float = 0.0, idle_us: float | None = None) -> LoadedRun:
    """CPU ranks: Python, work, an all-reduce that is waited for, work; rank 1 sleeps before it takes part. Rank 0's
    backend stamps the end so much later, or with `idle_us` its host is idle so long beside the all-reduce and goes on.
    """
    python_us, work_us, transfer_us = 300.0, 8_000.0, 1_000.0
    period_us = 2 * python_us + 2 * work_us + transfer_us + SLEEP_US

    def play(rank: int, began: float) -> Events:
        ready = began + python_us + SLEEP_US + work_us
        called, ended = ready if rank else began + python_us + work_us, ready + transfer_us
        resumed = ended if rank or idle_us is None else called + idle_us
        stamped = ended if rank else ended + stamped_late_us
        return [
            operator(rank, "aten::mm", called - work_us, work_us - 100, **TENSOR),
            operator(rank, "c10d::allreduce_", called - 60, 50, **TENSOR),
            operator(rank, "aten::mm", resumed + python_us / 2, began + period_us - resumed - python_us, **TENSOR),
            transfer(rank, "gloo:all_reduce", called, stamped - called, **TENSOR),
        ]

    return in_steps(folder, 5, period_us, play)


@pytest.mark.parametrize("late_us", [0.0, 1_000.0, 12_000.0])
def test_a_late_stamp_does_not_hide_what_a_slow_host_costs(tmp_path: Path, late_us: float) -> None:
    """It counts as transfer."""
    slow = two_ranks(tmp_path / "run", late_us).report.findings[0]
    assert (slow.id, slow.ranks) == ("straggler.host", (1,))
    assert slow.recoverable_us.value == pytest.approx(SLEEP_US, rel=0.1, abs=late_us)


def test_idle_time_that_ends_before_the_last_rank_came_is_no_wait(tmp_path: Path) -> None:
    waits, idles = two_ranks(tmp_path / "waits"), two_ranks(tmp_path / "idles", idle_us=0.95 * SLEEP_US)
    anchors = [run.pricer.graph.ranks[0].anchors for run in (waits, idles)]
    longest_ns = [max(a.end_ns - a.start_ns, default=0) for a in anchors]
    assert longest_ns[0] > 0.9e3 * SLEEP_US and longest_ns[1] < 0.1e3 * SLEEP_US


def made(start_ns: Array, dur_ns: Array, track: Array, launch_ns: Array, is_comm: Array) -> Operations:
    """Operations of which the collectives are all of one communication, and none is a copy."""
    rows, none = np.arange(len(start_ns)), np.zeros(len(start_ns), bool)
    return Operations(rows, start_ns, dur_ns, track, launch_ns, is_comm, none, np.where(is_comm, 0, -1))


def operations(launched: bool) -> Operations:
    """Two streams in turn: an operation starts when the one on the other stream ends; a third idles between its own."""
    at = np.arange(COUNT) * PERIOD_NS
    start = np.concatenate([at, at + 500_000, at])
    track = np.repeat(np.arange(3), COUNT)
    dur = np.where(track == 2, PERIOD_NS - IDLE_NS, 500_000)
    launch = np.where(launched, start - 2 * PERIOD_NS, NEVER)
    return made(start, dur, track, launch, np.zeros(3 * COUNT, bool))


def test_idle_time_is_a_lag_of_the_queue_or_released_by_what_ends_about_then() -> None:
    ops, dep = operations(launched=False), np.full(3 * COUNT, -1)
    dep[12:24] = np.arange(12)  # the second stream follows the first
    _, queue_lag, dep_lag = _lags(ops, dep)
    assert (queue_lag[13:24] <= DEFAULT_QUEUE_LAG_NS).all() and (dep_lag[12:24] == 0).all()
    _, queue_lag, _ = _lags(operations(launched=True), np.full(3 * COUNT, -1))
    assert (queue_lag[25:] == IDLE_NS).all()
    idle = 400 * OVERLAP_WITHOUT_HOST_NS * 10
    late_ns = idle // 2_000  # the transfer is stamped as ended so much after what it released began
    starts, took = [0, 1_000 + idle, 1_000 + idle - 5_000], [1_000, 1_000, 5_000 + late_ns]
    ops = made(np.array(starts), np.array(took), np.array([0, 0, 1]), np.full(3, NEVER), np.array([False, False, True]))
    dep = np.full(3, -1)
    _coincident(ops, ops.end_ns, dep, OVERLAP_WITHOUT_HOST_NS)
    assert dep[1] == 2 and late_ns > OVERLAP_WITHOUT_HOST_NS


def test_short_operations_that_follow_do_not_hide_what_released_the_first() -> None:
    """An optimizer's kernels of 2 us each, after an all-reduce that ends as the first one starts; no wait recorded."""
    idle, rows = 24_000_000, COUNT + 2
    start = np.concatenate(([0], 1_000 + idle + np.arange(COUNT) * 3_000, [500]))
    dur = np.concatenate(([1_000], np.full(COUNT, 2_000), [idle - 1_500]))
    is_comm, dep = np.arange(rows) == COUNT + 1, np.full(rows, -1)
    ops = made(start, dur, is_comm.astype(np.int64), np.zeros(rows, np.int64), is_comm)
    _coincident(ops, ops.end_ns, dep, OVERLAP_NS)
    assert dep[1] == COUNT + 1 and (dep[2:-1] == -1).all()


def loading(rank: int, began: float) -> Events:
    """A step that loads, goes forward, backward, waits for the transfer and steps the optimizer."""
    forward = began + LOAD_US
    ready = forward + FORWARD_US + BACKWARD_US
    return [
        annotation(rank, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", began, LOAD_US),
        annotation(rank, "ddprof::forward", forward, FORWARD_US),
        operator(rank, "aten::conv2d", forward, FORWARD_US),
        *all_reduce(rank, ready, BACKWARD_US, TRANSFER_US),
        annotation(rank, "ddprof::optimizer", ready + TRANSFER_US, OPTIMIZER_US),
        operator(rank, "aten::add_", ready + TRANSFER_US, OPTIMIZER_US),
    ]


def test_backward_is_work_after_forward_or_kernels_from_its_start_to_the_optimizer(
    tmp_path: Path, labelled: Runs
) -> None:
    """20 ms of a step of 72: loading, which is most of the step, hides no communication."""
    step_us = LOAD_US + FORWARD_US + BACKWARD_US + TRANSFER_US + OPTIMIZER_US
    for rank in build_graph(in_steps(tmp_path, STEPS, step_us, loading).job).ranks:
        assert backward_compute_ns(rank) / 1e3 == pytest.approx(np.full(STEPS, BACKWARD_US), rel=0.02)
    rank = labelled("clean.ddp").pricer.graph.ranks[0]
    phases, ops = rank.facts.phases, rank.ops
    optimizer_ns = np.sort(phases["start_ns"][phases["phase"] == Phase.OPTIMIZER])
    for step, backward_ns in enumerate(backward_compute_ns(rank)):
        mine = ~ops.is_comm & (ops.start_ns >= backward_start_ns(rank, step)) & (ops.launch_ns < optimizer_ns[step])
        assert backward_ns == pytest.approx(float(ops.dur_ns[mine].sum()))

"""The graph of a run: what a start keeps behind what came before it."""

import numpy as np

from ddprof.analyzers.execution.operations import NEVER, Operations
from ddprof.analyzers.replay.graph.build import DEFAULT_QUEUE_LAG_NS, _lags
from ddprof.analyzers.replay.graph.dependencies import OVERLAP_NS, OVERLAP_WITHOUT_HOST_NS, _coincident
from ddprof.tables import Array

PERIOD_NS, IDLE_NS = 1_000_000, 400_000


def made(start_ns: Array, dur_ns: Array, track: Array, launch_ns: Array, is_comm: Array) -> Operations:
    """Operations of which the collectives are all of one communication, and none is a copy."""
    rows, none = np.arange(len(start_ns)), np.zeros(len(start_ns), bool)
    return Operations(rows, start_ns, dur_ns, track, launch_ns, is_comm, none, np.where(is_comm, 0, -1))


def operations(launched: bool) -> Operations:
    """Two streams in turn: an operation starts when the one on the other stream ends; a third idles between its own."""
    count = 12
    at = np.arange(count) * PERIOD_NS
    start = np.concatenate([at, at + 500_000, at])
    track = np.repeat(np.arange(3), count)
    dur = np.where(track == 2, PERIOD_NS - IDLE_NS, 500_000)
    launch = np.where(launched, start - 2 * PERIOD_NS, NEVER)
    return made(start, dur, track, launch, np.zeros(3 * count, bool))


def test_idle_time_is_a_lag_of_the_queue_or_released_by_what_ends_about_then() -> None:
    ops = operations(launched=False)
    dep = np.full(len(ops.row), -1)
    dep[12:24] = np.arange(12)  # the second stream follows the first
    _, queue_lag, dep_lag = _lags(ops, dep)
    assert (queue_lag[13:24] <= DEFAULT_QUEUE_LAG_NS).all() and (dep_lag[12:24] == 0).all()
    ops = operations(launched=True)
    _, queue_lag, _ = _lags(ops, np.full(len(ops.row), -1))
    assert (queue_lag[25:] == IDLE_NS).all()
    idle = 400 * OVERLAP_WITHOUT_HOST_NS * 10
    late_ns = idle // 2_000  # the transfer is stamped as ended so much after what it released began
    starts, took = [0, 1_000 + idle, 1_000 + idle - 5_000], [1_000, 1_000, 5_000 + late_ns]
    ops = made(np.array(starts), np.array(took), np.array([0, 0, 1]), np.full(3, NEVER), np.array([False, False, True]))
    dep = np.full(3, -1)
    _coincident(ops, ops.end_ns, dep, OVERLAP_WITHOUT_HOST_NS)
    assert dep[1] == 2 and late_ns > OVERLAP_WITHOUT_HOST_NS


def test_short_operations_that_follow_do_not_hide_what_released_the_first() -> None:
    # An optimizer's kernels of 2 us each, after an all-reduce that ends as the first one starts; no wait call recorded.
    idle, count = 24_000_000, 12
    start = np.concatenate(([0], 1_000 + idle + np.arange(count) * 3_000, [500]))
    dur = np.concatenate(([1_000], np.full(count, 2_000), [idle - 1_500]))
    is_comm = np.arange(count + 2) == count + 1
    ops = made(start, dur, is_comm.astype(np.int64), np.zeros(count + 2, np.int64), is_comm)
    dep = np.full(count + 2, -1)
    _coincident(ops, ops.end_ns, dep, OVERLAP_NS)
    assert dep[1] == count + 1 and (dep[2:-1] == -1).all()

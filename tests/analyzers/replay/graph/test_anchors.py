"""CPU ranks whose backend thread stamps the end of a collective after the rank that waited for it runs again."""

from pathlib import Path

import pytest
from gloo_traces import TENSOR, Events, in_steps, operator, transfer

from ddprof.analyzers.engine import LoadedRun

PYTHON_US, WORK_US, TRANSFER_US, SLEEP_US = 300.0, 8_000.0, 1_000.0, 100_000.0
PERIOD_US = 2 * PYTHON_US + 2 * WORK_US + TRANSFER_US + SLEEP_US


def two_ranks(folder: Path, stamped_late_us: float = 0.0, idle_us: float | None = None) -> LoadedRun:
    """Each step: Python, work, an all-reduce that is waited for, work; rank 1 sleeps before it takes part. Rank 0's
    backend stamps the end so much later, or with `idle_us` its host is idle so long beside the all-reduce and goes on.
    """

    def play(rank: int, began: float) -> Events:
        ready = began + PYTHON_US + SLEEP_US + WORK_US
        called, ended = ready if rank else began + PYTHON_US + WORK_US, ready + TRANSFER_US
        resumed = ended if rank or idle_us is None else called + idle_us
        stamped = ended if rank else ended + stamped_late_us
        return [
            operator(rank, "aten::mm", called - WORK_US, WORK_US - 100, **TENSOR),
            operator(rank, "c10d::allreduce_", called - 60, 50, **TENSOR),
            operator(rank, "aten::mm", resumed + PYTHON_US / 2, began + PERIOD_US - resumed - PYTHON_US, **TENSOR),
            transfer(rank, "gloo:all_reduce", called, stamped - called, **TENSOR),
        ]

    return in_steps(folder, 5, PERIOD_US, play)


@pytest.mark.parametrize("late_us", [0.0, 1_000.0, 12_000.0])
def test_a_late_stamp_does_not_hide_what_a_slow_host_costs(tmp_path: Path, late_us: float) -> None:
    found = two_ranks(tmp_path / "run", late_us).report.findings[0]
    assert (found.id, found.ranks) == ("straggler.host", (1,))
    # What the stamp is late by counts as transfer.
    assert found.recoverable_us.value == pytest.approx(SLEEP_US, rel=0.1, abs=late_us)


def test_idle_time_that_ends_before_the_last_rank_came_is_no_wait(tmp_path: Path) -> None:
    waits, idles = two_ranks(tmp_path / "waits"), two_ranks(tmp_path / "idles", idle_us=0.95 * SLEEP_US)
    anchors = [run.pricer.graph.ranks[0].anchors for run in (waits, idles)]
    longest_ns = [max(a.end_ns - a.start_ns, default=0) for a in anchors]
    assert longest_ns[0] > 0.9e3 * SLEEP_US and longest_ns[1] < 0.1e3 * SLEEP_US

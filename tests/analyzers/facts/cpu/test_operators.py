"""CPU ranks that wait for their peers inside an operator: that is no computing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from gloo_traces import TENSOR, Events, annotation, in_steps, operator, transfer, write
from labelled_runs import only_run

from ddprof.analyzers.engine import LoadedRun

STEPS, EARLY_US, LATE_US, TRANSFER_US, AFTER_US = 5, 8_000.0, 28_000.0, 1_000.0, 4_000.0
Call = Callable[[int, float, float], Events]


def in_autograd_function(rank: int, called: float, ended: float) -> Events:
    """A tensor parallel layer: its autograd function calls c10d, which waits, and copies the result."""
    return [
        operator(rank, "_ReduceFromModelParallelRegion", called - 100, ended - called + 300, **TENSOR),
        operator(rank, "c10d::allreduce_", called - 40, ended - called + 60, **TENSOR),
    ]


def in_python(rank: int, called: float, ended: float) -> Events:
    """The same where c10d's call returns at once, and Python waits in `Work.wait`."""
    return [
        operator(rank, "_ReduceFromModelParallelRegion", called - 100, ended - called + 300, **TENSOR),
        operator(rank, "c10d::allreduce_", called - 40, 90, **TENSOR),
    ]


def in_wait_tensor(rank: int, called: float, ended: float) -> Events:
    """DTensor and compiled graphs: a functional collective, and the operator that waits for it."""
    return [
        operator(rank, "_c10d_functional::all_reduce", called - 90, 80, **TENSOR),
        operator(rank, "c10d::allreduce_", called - 60, 40, **TENSOR),
        operator(rank, "aten::mul", called + 50, 40, **TENSOR),
        operator(rank, "_c10d_functional::wait_tensor", called + 100, ended - called - 90, **TENSOR),
    ]


def asynchronous(rank: int, called: float, ended: float) -> Events:
    """A hook in backward that only starts it; the training thread waits later, in no operator."""
    return [
        operator(rank, "autograd::AccumulateGrad", called - 100, 200, **TENSOR),
        operator(rank, "c10d::allreduce_", called - 60, 100, **TENSOR),
    ]


def two_ranks(folder: Path, call: Call) -> LoadedRun:
    """Each step: work (rank 1's takes 20 ms longer), an all-reduce that is waited for, work."""

    def play(rank: int, began: float) -> Events:
        called, ended = began + (LATE_US if rank else EARLY_US), began + LATE_US + TRANSFER_US
        return [
            operator(rank, "aten::mm", began + 10, called - 110 - began, **TENSOR),
            *call(rank, called, ended),
            transfer(rank, "gloo:all_reduce", called, ended - called, **TENSOR),
            operator(rank, "aten::mm", ended + 250, AFTER_US - 200, **TENSOR),
        ]

    return in_steps(folder, STEPS, LATE_US + TRANSFER_US + AFTER_US + 200, play)


@pytest.mark.parametrize("call", [in_autograd_function, in_python, in_wait_tensor, asynchronous])
def test_waiting_is_waiting_wherever_it_is_called(tmp_path: Path, call: Call) -> None:
    run = two_ranks(tmp_path / "run", call)
    ledger = run.report.ledger.per_rank
    assert ledger[0]["comm_wait"] == pytest.approx(LATE_US - EARLY_US, rel=0.03)
    assert ledger[0]["comm_transfer"] == pytest.approx(TRANSFER_US, rel=0.15)
    assert ledger[0]["compute"] == pytest.approx(EARLY_US + AFTER_US, rel=0.05)
    assert ledger[1]["compute"] == pytest.approx(LATE_US + AFTER_US, rel=0.05)
    found = run.report.findings[0]
    assert (found.id, found.ranks) == ("straggler.compute", (1,))
    assert found.recoverable_us.value == pytest.approx(LATE_US - EARLY_US, rel=0.1)
    assert run.report.replay.error < 0.01


def copies_inside(rank: int, called: float, ended: float) -> Events:
    """The library copies on the calling thread for 3 ms before it waits."""
    return [
        operator(rank, "c10d::allreduce_", called - 40, ended - called + 60, **TENSOR),
        operator(rank, "aten::copy_", called, 3_000, **TENSOR),
    ]


def test_what_the_library_computes_on_the_thread_is_computing(tmp_path: Path) -> None:
    ledger = two_ranks(tmp_path / "run", copies_inside).report.ledger.per_rank
    assert ledger[0]["compute"] == pytest.approx(EARLY_US + AFTER_US + 3_000, rel=0.05)
    assert ledger[0]["comm_wait"] == pytest.approx(LATE_US - EARLY_US - 3_000, rel=0.05)


def test_ranks_whose_communication_is_not_recorded_are_not_called_slow(tmp_path: Path) -> None:
    """Horovod moves its data itself: what of a rank's time is waiting cannot be known."""
    ranks: list[Events] = [[], []]
    for rank, events in enumerate(ranks):
        period_us = 20_000.0 if rank else 30_000.0
        for step in range(STEPS):
            began = step * period_us
            events += [
                annotation(rank, f"ProfilerStep#{step}", began, period_us),
                operator(rank, "aten::mm", began + 10, 4_000.0, **TENSOR),
                operator(rank, "aten::add_", began + period_us - 1_000, 900.0, **TENSOR),
            ]
    run = only_run(write(tmp_path, ranks))
    assert not [finding for finding in run.report.findings if finding.ranks]
    assert "straggler.host" in {item.id for item in run.report.abstentions}
    assert any("no communication was recorded" in note.issue for note in run.report.health)

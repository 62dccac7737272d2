"""CPU ranks that wait for their peers inside an operator: that is no computing."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from gloo_traces import TENSOR, Events, annotation, in_steps, operator, transfer, write
from labelled_runs import only_run

from ddprof.analyzers.engine import LoadedRun

STEPS, EARLY_US, LATE_US, TRANSFER_US, AFTER_US = 5, 8_000.0, 28_000.0, 1_000.0, 4_000.0
Call = Sequence[tuple[str, float, float, bool]]
C10D, REGION = "c10d::allreduce_", "_ReduceFromModelParallelRegion"
# Operators around the collective: name, start after its call, length; True: so much longer than it is waited for.
CALLS: dict[str, Call] = {
    "an autograd function of a tensor parallel layer": ((REGION, -100, 300, True), (C10D, -40, 60, True)),
    "the same, and Python waits in `Work.wait`": ((REGION, -100, 300, True), (C10D, -40, 90, False)),
    "a functional collective, and the operator that waits for it": (
        *(("_c10d_functional::all_reduce", -90, 80, False), (C10D, -60, 40, False), ("aten::mul", 50, 40, False)),
        ("_c10d_functional::wait_tensor", 100, -90, True),
    ),
    "a hook in backward only starts it": (("autograd::AccumulateGrad", -100, 200, False), (C10D, -60, 100, False)),
}
COPIES_INSIDE = ((C10D, -40, 60, True), ("aten::copy_", 0, 1_000, False))


def test_a_compiled_region_has_the_shapes_of_the_function_in_it(tmp_path: Path) -> None:
    """Rank 1 gives its compiled model batches three times as large: they are told, not a slow core."""

    def play(rank: int, began: float) -> Events:
        rows, length = (192, 21_000.0) if rank else (64, 7_000.0)
        given = {"Input Dims": [[rows, 384], [384, 384]], "Input type": ["float", "float"]}
        return [
            operator(rank, "Torch-Compiled Region: 0/0", began + 10, length),
            operator(rank, "CompiledFunction", began + 30, length - 40, **given),
            operator(rank, C10D, began + length + 20, 60, **TENSOR),
            transfer(rank, "gloo:all_reduce", began + length + 30, 22_500 - length, **TENSOR),
        ]

    found = in_steps(tmp_path / "run", STEPS, 24_000, play).report.findings[0]
    assert (found.id, found.ranks) == ("straggler.imbalance", (1,)) and "3.00x the elements" in found.summary


def two_ranks(folder: Path, call: Call) -> LoadedRun:
    """Each step: work (rank 1's takes 20 ms longer), an all-reduce that is waited for, work."""

    def play(rank: int, began: float) -> Events:
        called, ended = began + (LATE_US if rank else EARLY_US), began + LATE_US + TRANSFER_US
        return [
            operator(rank, "aten::mm", began + 10, called - 110 - began, **TENSOR),
            *(
                operator(rank, name, called + at, length + is_whole * (ended - called), **TENSOR)
                for name, at, length, is_whole in call
            ),
            transfer(rank, "gloo:all_reduce", called, ended - called, **TENSOR),
            operator(rank, "aten::mm", ended + 250, AFTER_US - 200, **TENSOR),
        ]

    return in_steps(folder, STEPS, LATE_US + TRANSFER_US + AFTER_US + 200, play)


@pytest.mark.parametrize("call", CALLS)
def test_waiting_is_waiting_wherever_it_is_called(tmp_path: Path, call: str) -> None:
    run = two_ranks(tmp_path / "run", CALLS[call])
    ledger = run.report.ledger.per_rank
    assert ledger[0]["comm_wait"] == pytest.approx(LATE_US - EARLY_US, rel=0.03)
    assert ledger[0]["comm_transfer"] == pytest.approx(TRANSFER_US, rel=0.15)
    assert ledger[0]["compute"] == pytest.approx(EARLY_US + AFTER_US, rel=0.05)
    assert ledger[1]["compute"] == pytest.approx(LATE_US + AFTER_US, rel=0.05)
    found = run.report.findings[0]
    assert (found.id, found.ranks) == ("straggler.compute", (1,))
    assert found.recoverable_us.value == pytest.approx(LATE_US - EARLY_US, rel=0.1)
    assert run.report.replay.error < 0.01


def test_what_the_library_computes_on_the_thread_before_it_waits_is_computing(tmp_path: Path) -> None:
    ledger = two_ranks(tmp_path / "run", COPIES_INSIDE).report.ledger.per_rank
    assert ledger[0]["compute"] == pytest.approx(EARLY_US + AFTER_US + 1_000, rel=0.05)
    assert ledger[0]["comm_wait"] == pytest.approx(LATE_US - EARLY_US - 1_000, rel=0.05)


def test_ranks_whose_communication_is_not_recorded_are_not_called_slow(tmp_path: Path) -> None:
    """Horovod moves its data itself: what of a rank's time is waiting cannot be known."""
    ranks: list[Events] = [[], []]
    for rank, period_us in enumerate((30_000.0, 20_000.0)):
        for began in (step * period_us for step in range(STEPS)):
            ranks[rank] += [
                annotation(rank, f"ProfilerStep#{began / period_us:.0f}", began, period_us),
                operator(rank, "aten::mm", began + 10, 4_000.0, **TENSOR),
                operator(rank, "aten::add_", began + period_us - 1_000, 900.0, **TENSOR),
            ]
    run = only_run(write(tmp_path, ranks))
    assert not [finding for finding in run.report.findings if finding.ranks]
    assert "straggler.host" in {item.id for item in run.report.abstentions}
    assert any("no communication was recorded" in note.issue for note in run.report.health)

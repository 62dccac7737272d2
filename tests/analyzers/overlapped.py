"""Two gloo ranks whose work overlaps an all-reduce, every instant known."""

from pathlib import Path

from gloo_traces import TENSOR, Events, in_steps, operator, transfer

from ddprof.analyzers.engine import LoadedRun

STEPS, WORK_US, TRANSFER_US, TAIL_US = 5, 20_000.0, 12_000.0, 4_000.0


def overlapped(folder: Path) -> LoadedRun:
    """Two gloo ranks: an all-reduce is called at the start of 20 ms of work and runs beside it for 12 ms."""

    def play(rank: int, began: float) -> Events:
        return [
            operator(rank, "c10d::allreduce_", began + 10, 40, **TENSOR),
            transfer(rank, "gloo:all_reduce", began + 60, TRANSFER_US, **TENSOR),
            operator(rank, "aten::mm", began + 60, WORK_US - 60),
            operator(rank, "aten::add_", began + WORK_US, TAIL_US),
        ]

    return in_steps(folder, STEPS, WORK_US + TAIL_US, play)

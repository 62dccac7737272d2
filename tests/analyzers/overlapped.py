"""Two gloo ranks whose work overlaps an all-reduce, every instant known."""

from pathlib import Path

from gloo_traces import TENSOR, Events, annotation, operator, transfer, write

STEPS, WORK_US, TRANSFER_US, TAIL_US, LOAD_US = 5, 20_000.0, 12_000.0, 4_000.0, 30_000.0


def written(folder: Path) -> Path:
    """Two gloo ranks: an all-reduce is called at the start of 20 ms of work and runs beside it for 12 ms."""
    ranks: list[Events] = [[], []]
    for rank, events in enumerate(ranks):
        for step in range(STEPS):
            began = step * (WORK_US + TAIL_US)
            events += [
                operator(rank, "c10d::allreduce_", began + 10, 40, **TENSOR),
                transfer(rank, "gloo:all_reduce", began + 60, TRANSFER_US, **TENSOR),
                operator(rank, "aten::mm", began + 60, WORK_US - 60),
                operator(rank, "aten::add_", began + WORK_US, TAIL_US),
                annotation(rank, f"ProfilerStep#{step}", began, WORK_US + TAIL_US),
            ]
    return write(folder, ranks)

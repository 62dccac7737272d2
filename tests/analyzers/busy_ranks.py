"""Two gloo ranks that run the same operators in every step, and where their threads are held meanwhile."""

from collections.abc import Callable
from pathlib import Path

from gloo_traces import TENSOR, Events, annotation, operator, transfer, write

STEPS, OPERATORS = 6, 8
DUR_US, PYTHON_US, MEETING_US = 2_000.0, 40.0, 300.0
Held = Callable[[int, int, int], float]  # (rank, step, operator) -> us


def never(rank: int, step: int, number: int) -> float:
    return 0.0


def busy_ranks(
    folder: Path,
    in_operator: Held = never,
    in_python: Held = never,
    extra: Callable[[int, int], int] | None = None,
    usual_us: Callable[[int], float] = lambda number: DUR_US,
) -> Path:
    """Traces of ranks whose threads are held inside an operator, or before it, for so long. `extra`: operators that a
    rank runs in a step beside those of all; `usual_us`: of each operator."""
    events: list[Events] = [[], []]
    begun = 1_000.0
    for step in range(STEPS):
        ends = []
        for rank in (0, 1):
            at = begun
            for number in range(OPERATORS):
                at += PYTHON_US + in_python(rank, step, number)
                dur_us = usual_us(number) + in_operator(rank, step, number)
                events[rank].append(operator(rank, f"aten::op{number}", at, dur_us))
                at += dur_us
            for _ in range(extra(rank, step) if extra else 0):
                events[rank].append(operator(rank, "aten::matmul", at, DUR_US))
                at += DUR_US
            ends.append(at + PYTHON_US)
        met = max(ends) + MEETING_US
        for rank in (0, 1):
            call = {"Record function id": step, **TENSOR}
            events[rank].append(operator(rank, "c10d::allreduce_", ends[rank], 20.0, **call))
            events[rank].append(transfer(rank, "gloo:all_reduce", ends[rank] + 5.0, met - ends[rank] - 5.0, **call))
            events[rank].append(annotation(rank, f"ProfilerStep#{step}", begun, met + 50.0 - begun))
        begun = met + 50.0
    return write(folder, events)


def by_chance(rank: int, step: int, number: int) -> float:
    """A slice of the scheduler here and there, on rank 1 in most steps and on rank 0 in some."""
    if rank == 1:
        return 4_000.0 if number == (3 * step) % OPERATORS and step != 2 else 0.0
    return 4_000.0 if number == (5 * step + 1) % OPERATORS and step in (2, 4) else 0.0

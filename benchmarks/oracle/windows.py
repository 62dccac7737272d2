"""When the steady steps of a rank were: by the host's marks, or, where the host runs ahead, in the device's time."""

from __future__ import annotations

import itertools

from benchmarks.oracle.rank import COMPUTE, Rank

Window = tuple[float, float]


def windows(rank: Rank) -> list[Window]:
    """Begin and end of every steady step in true microseconds, in order."""
    every = device_steps(rank) if rank.world.model.sync == "none" else list(itertools.pairwise(rank.marks))
    return [every[step] for step in rank.steady]


def device_steps(rank: Rank) -> list[Window]:
    """Each recorded step from the start of its first operation on the compute stream to that of the next step's.

    The last one ends with its last operation.
    """
    starts: dict[int, float] = {}
    for op in rank.ops:
        if op.step >= 0 and op.stream == COMPUTE and op.start is not None:
            starts.setdefault(op.step, op.start)
    end = max(op.end for op in rank.ops if op.end is not None and op.step >= 0)
    return list(itertools.pairwise([*(starts[step] for step in sorted(starts)), end]))

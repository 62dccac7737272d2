"""Bus bandwidth over algorithm bandwidth of each collective, by nccl-tests (PERFORMANCE.md)."""

from __future__ import annotations

from collections.abc import Callable

# busbw = algbw x factor(n) (nccl-tests PERFORMANCE.md); the size is the total array.
_BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
}


def bus_factor(op: str, ranks: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth of a collective among so many ranks; None for other operations."""
    factor = _BUS_FACTORS.get(op)
    return None if factor is None or ranks < 2 else factor(ranks)

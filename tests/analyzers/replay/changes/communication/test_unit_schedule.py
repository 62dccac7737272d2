"""The schedule of sharded units, against what can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ddprof.analyzers.replay.changes.communication.sharded_units import scheduled
from ddprof.tables import Array

FOUR = np.full(4, 1.0)
NONE = np.zeros(4)


KEPT = np.array([0.0, 1.0, 1.0, 1.0])  # backward: the last unit is there


@pytest.mark.parametrize(
    ("gather", "compute", "reduce", "is_ahead", "stalls", "tail"),
    [
        (FOUR, 5 * FOUR, NONE, False, [1, 1, 1, 1], 0),  # all are exposed
        (FOUR, 5 * FOUR, NONE, True, [1, 0, 0, 0], 0),  # the first is
        (5 * FOUR, FOUR, NONE, True, [5, 4, 4, 4], 0),  # longer than compute: the difference is
        # Reductions delay the gathers behind them: each is launched before the next but one gather.
        (KEPT, 5 * FOUR, FOUR, False, [0, 2, 2, 2], 1),  # a gather and the reduction before it
        (KEPT, 5 * FOUR, FOUR, True, [0, 2, 0, 0], 1),  # nothing launches the first gather early
    ],
)
def test_what_is_exposed(
    gather: Array, compute: Array, reduce: Array, is_ahead: bool, stalls: list[int], tail: int
) -> None:
    found = scheduled(gather, compute, reduce, is_ahead=is_ahead)
    assert (found.stalls_ns.tolist(), found.tail_ns) == (stalls, tail)


def test_communication_that_nothing_hides_adds_up() -> None:
    found = scheduled(3 * FOUR, NONE, 2 * FOUR, is_ahead=True)
    assert found.exposed_ns == pytest.approx(4 * 3 + 4 * 2)

"""The schedule of sharded units, against what can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ddprof.analyzers.replay.changes.communication.unit_schedule import scheduled

FOUR = np.full(4, 1.0)
NONE = np.zeros(4)


def test_gathers_when_needed_are_all_exposed() -> None:
    found = scheduled(FOUR, 5 * FOUR, NONE, is_ahead=False)
    assert found.stalls_ns.tolist() == [1, 1, 1, 1]
    assert found.tail_ns == 0


def test_gathers_ahead_expose_the_first() -> None:
    assert scheduled(FOUR, 5 * FOUR, NONE, is_ahead=True).stalls_ns.tolist() == [1, 0, 0, 0]


def test_gathers_longer_than_compute_expose_the_difference() -> None:
    assert scheduled(5 * FOUR, FOUR, NONE, is_ahead=True).stalls_ns.tolist() == [5, 4, 4, 4]


def test_reductions_delay_the_gathers_behind_them() -> None:
    """Backward: the last unit is there, each unit's reduction is launched before the next but one gather."""
    kept = np.array([0.0, 1.0, 1.0, 1.0])
    late = scheduled(kept, 5 * FOUR, FOUR, is_ahead=False)
    assert late.stalls_ns.tolist() == [0, 2, 2, 2]  # a gather and the reduction before it
    ahead = scheduled(kept, 5 * FOUR, FOUR, is_ahead=True)
    assert ahead.stalls_ns.tolist() == [0, 2, 0, 0]  # nothing launches the first gather early
    assert ahead.tail_ns == late.tail_ns == 1


def test_communication_that_nothing_hides_adds_up() -> None:
    found = scheduled(3 * FOUR, NONE, 2 * FOUR, is_ahead=True)
    assert found.exposed_ns == pytest.approx(4 * 3 + 4 * 2)

"""The step from which on a rank is slower than before."""

from __future__ import annotations

import numpy as np
import pytest

from ddprof.analyzers.job.compared.onset import onset

LEAST = 0.05


def scatter(steps: int, seed: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(seed).normal(0.0, 0.01, steps)


@pytest.mark.parametrize("since", [3, 4, 9])
def test_finds_when_a_device_became_slow(since: int) -> None:
    found = onset(scatter(12) + 0.3 * (np.arange(12) >= since), LEAST)
    assert found is not None and found.step == since
    assert found.excess == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("seed", range(200))
def test_scatter_has_none(seed: int) -> None:
    assert onset(10 * scatter(8, seed), LEAST) is None


def test_what_passes_is_no_onset() -> None:
    steps = np.arange(12)
    assert onset(scatter(12) + 0.3 * ((steps >= 4) & (steps < 8)), LEAST) is None


def test_a_rank_that_catches_up_with_its_peers_is_not_slow() -> None:
    assert onset(scatter(12) - 0.3 * (np.arange(12) < 6), LEAST) is None


def test_two_slow_steps_are_too_few() -> None:
    assert onset(scatter(12) + 0.3 * (np.arange(12) >= 10), LEAST) is None

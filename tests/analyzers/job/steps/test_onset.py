"""The step from which on a rank is slower than before."""

import numpy as np
import pytest

from ddprof.analyzers.job.steps.onset import onset

LEAST = 0.05
STEPS = np.arange(12)


def scatter(steps: int, seed: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(seed).normal(0.0, 0.01, steps)


@pytest.mark.parametrize("since", [3, 4, 9])
def test_finds_when_a_device_became_slow(since: int) -> None:
    found = onset(scatter(12) + 0.3 * (since <= STEPS), LEAST)
    assert found is not None and found.step == since and found.excess == pytest.approx(0.3, abs=0.02)


def test_scatter_has_none() -> None:
    assert [seed for seed in range(200) if onset(10 * scatter(8, seed), LEAST) is not None] == []


@pytest.mark.parametrize(
    "changed",
    [
        0.3 * ((STEPS >= 4) & (STEPS < 8)),  # it passes
        -0.3 * (STEPS < 6),  # it catches up with its peers
        0.3 * (STEPS >= 10),  # two steps are too few
    ],
)
def test_what_is_no_onset(changed: np.ndarray) -> None:  # type: ignore[type-arg]
    assert onset(scatter(12) + changed, LEAST) is None

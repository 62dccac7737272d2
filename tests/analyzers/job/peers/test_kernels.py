"""Kernels are compared with those at the same place of the peers' program, in the same company."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.peers.kernels import Kernels, compared, kernels_by_place

STEPS = 2
SHORT, LONG = 100.0, 600.0


def rank(dur_ns: list[float], beside: list[bool] | None = None, either: list[bool] | None = None) -> Kernels:
    """A rank that launches one kernel several times in each of two equal steps."""
    count = len(dur_ns)
    return Kernels(
        names=("gemm",),
        name=np.zeros(STEPS * count, np.int64),
        step=np.repeat(np.arange(STEPS), count),
        issued_ns=np.tile(np.arange(count), STEPS),
        dur_ns=np.tile(np.array(dur_ns, float), STEPS),
        is_beside=np.tile(np.array(beside or [False] * count, bool), STEPS),
        is_either=np.tile(np.array(either or [True] * count, bool), STEPS),
    )


LAUNCHES = [SHORT, LONG, LONG, SHORT, SHORT, LONG, SHORT, LONG]
USUAL = rank([SHORT, LONG])


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        # The peers run the longer of two kernels of one name beside the communication in which they wait for the first.
        ([rank([1.2 * SHORT, 1.2 * LONG]), *[rank([SHORT, LONG], beside=[False, True])] * 3], [1.2, 1.0, 1.0, 1.0]),
        # Beside communication in part: not compared.
        ([rank([SHORT, 5 * LONG], either=[True, False]), USUAL, USUAL], [1.0] * 3),
        # Three launches of one length each: by name they are as fast, by places the second would be far too fast.
        ([rank([SHORT, SHORT, LONG, SHORT, LONG, LONG]), USUAL, USUAL], [1.0] * 3),
        # A few launches more: their mean holds more of the long ones, the rank is not slow and its peer not fast.
        ([rank([SHORT, SHORT, LONG, LONG]), rank([SHORT, SHORT, LONG])], [np.nan] * 2),
        # Most ranks do not launch it equally often.
        ([rank([SHORT] * 3), rank([SHORT] * 4), rank([2 * SHORT] * 5)], [np.nan] * 3),
        # Each lacks the record of another launch, after which every place holds other work.
        ([rank(LAUNCHES[:1] + LAUNCHES[2:]), rank(LAUNCHES[:5] + LAUNCHES[6:])], [1.0] * 2),
        # A kernel that one rank runs has no typical time.
        ([rank([SHORT]), rank([])], [np.nan] * 2),
    ],
)
def test_kernels_are_compared_at_one_place_in_one_company(ranks: list[Kernels], expected: list[float]) -> None:
    """Expected: the time of each rank's kernels over what they should take, all steps together."""
    found = compared(ranks, STEPS)
    factors = [each.took_ns.sum() / each.expected_ns.sum() if each.took_ns.any() else np.nan for each in found]
    assert factors == pytest.approx(expected, nan_ok=True)


def test_a_step_that_is_longer_on_all_ranks_makes_nobody_slow() -> None:
    found = compared([replace(USUAL, dur_ns=np.where(USUAL.step == 1, 1.5 * USUAL.dur_ns, USUAL.dur_ns))] * 3, STEPS)
    assert all(each.took_ns.sum(axis=0) == pytest.approx(each.expected_ns.sum(axis=0)) for each in found)
    assert compared([], STEPS) == []


def test_places_are_counted_in_the_order_of_launches(labelled: Runs) -> None:
    facts = labelled("straggler.compute").job.ranks[0]
    steps = len(facts.steps)
    kernels = kernels_by_place(facts, steps)
    for name in range(len(kernels.names)):
        for step in range(steps):
            mine = kernels.place[(kernels.name == name) & (kernels.step == step)]
            assert sorted(mine.tolist()) == list(range(len(mine)))

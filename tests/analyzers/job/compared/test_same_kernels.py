"""Kernels are compared with those at the same place of the peers' program, in the same company."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.compared.same_kernels import Kernels, compared, kernels_by_place

STEPS = 2
SHORT, LONG = 100.0, 600.0


def rank(dur_ns: list[float], beside: list[bool] | None = None, either: list[bool] | None = None) -> Kernels:
    """A rank that launches one kernel several times in each of two equal steps."""
    count = len(dur_ns)
    return Kernels(
        names=("gemm",),
        name=np.zeros(STEPS * count, np.int64),
        step=np.repeat(np.arange(STEPS), count),
        place=np.tile(np.arange(count), STEPS),
        dur_ns=np.tile(np.array(dur_ns, float), STEPS),
        is_beside=np.tile(np.array(beside or [False] * count, bool), STEPS),
        is_either=np.tile(np.array(either or [True] * count, bool), STEPS),
    )


def factors(*ranks: Kernels) -> list[float]:
    """Of each rank what its kernels took over what is expected of them, over all steps; NaN where none is compared."""
    found = compared(ranks, STEPS)
    return [float(each.took_ns.sum() / each.expected_ns.sum()) if each.took_ns.any() else np.nan for each in found]


def test_what_a_late_rank_runs_alone_is_not_set_against_other_places_of_its_peers() -> None:
    """Its peers run the longer of two kernels of one name beside the communication in which they wait for it."""
    late = rank([1.2 * SHORT, 1.2 * LONG])
    peers = [rank([SHORT, LONG], beside=[False, True]) for _ in range(3)]
    assert factors(late, *peers) == pytest.approx([1.2, 1.0, 1.0, 1.0])


def test_kernels_beside_communication_in_part_are_not_compared() -> None:
    odd = rank([SHORT, 5 * LONG], either=[True, False])
    assert factors(odd, rank([SHORT, LONG]), rank([SHORT, LONG])) == pytest.approx([1.0, 1.0, 1.0])


def test_places_of_a_rank_that_launches_more_are_not_those_of_its_peers() -> None:
    """Three launches of one length each: by name they are as fast, by places the second would be far too fast."""
    more = rank([SHORT, SHORT, LONG, SHORT, LONG, LONG])
    peers = [rank([SHORT, LONG]) for _ in range(2)]
    assert factors(more, *peers) == pytest.approx([1.0, 1.0, 1.0])


def test_a_kernel_launched_a_few_times_more_than_by_the_peers_is_not_compared() -> None:
    """The mean of its launches holds more of the long ones: the rank is not slow, and its peer not fast."""
    assert np.isnan(factors(rank([SHORT, SHORT, LONG, LONG]), rank([SHORT, SHORT, LONG]))).all()


def test_where_most_ranks_do_not_launch_a_kernel_equally_often_nobody_is_compared() -> None:
    counts = [rank([SHORT] * 3), rank([SHORT] * 4), rank([2 * SHORT] * 5)]
    assert np.isnan(factors(*counts)).all()


def test_ranks_that_each_lack_the_record_of_another_launch_are_not_both_slow() -> None:
    """After the missing record every place holds other work, and the sums differ by what the two records took."""
    launches = [SHORT, LONG, LONG, SHORT, SHORT, LONG, SHORT, LONG]
    found = factors(rank(launches[:1] + launches[2:]), rank(launches[:5] + launches[6:]))
    assert found == pytest.approx([1.0, 1.0])


def test_a_step_that_is_longer_on_all_ranks_makes_nobody_slow() -> None:
    found = compared([_second_longer(rank([SHORT, LONG]), by) for by in (1.5, 1.5, 1.5)], STEPS)
    assert all(each.took_ns.sum(axis=0) == pytest.approx(each.expected_ns.sum(axis=0)) for each in found)


def _second_longer(own: Kernels, by: float) -> Kernels:
    return replace(own, dur_ns=np.where(own.step == 1, by * own.dur_ns, own.dur_ns))


def test_a_kernel_that_few_ranks_run_has_no_typical_time() -> None:
    assert np.isnan(factors(rank([SHORT]), rank([])))[0]
    assert compared([], STEPS) == []


def test_places_are_counted_in_the_order_of_launches(labelled: Runs) -> None:
    facts = labelled("straggler.compute").job.ranks[0]
    steps = len(facts.steps)
    kernels = kernels_by_place(facts, steps)
    for name in range(len(kernels.names)):
        for step in range(steps):
            mine = kernels.place[(kernels.name == name) & (kernels.step == step)]
            assert sorted(mine.tolist()) == list(range(len(mine)))

"""Ranks against their peers: kernels at one place, who is asked for more, and who was kept from running."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from busy_ranks import DUR_US, OPERATORS, STEPS, Held, busy_ranks, by_chance, never
from cpu_loop import Chore, cpu_loop
from kineto_run import Script
from labelled_runs import Runs, only_run

from ddprof.analyzers.facts.model import HOST_OPERATORS
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.peers.cpu_stops import CpuStops, cpu_stops, held_between
from ddprof.analyzers.job.peers.hot_shards import hot_shards
from ddprof.analyzers.job.peers.kernels import Kernels, compared, kernels_by_place
from ddprof.analyzers.job.slowdown import compute_slowdown, work_slowdown

TWICE = 2
SHORT, LONG = 100.0, 600.0


def rank(dur_ns: list[float], beside: list[bool] | None = None, either: list[bool] | None = None) -> Kernels:
    """A rank that launches one kernel several times in each of two equal steps."""
    count = len(dur_ns)
    return Kernels(
        names=(("gemm", ""),),
        name=np.zeros(TWICE * count, np.int64),
        step=np.repeat(np.arange(TWICE), count),
        issued_ns=np.tile(np.arange(count), TWICE),
        dur_ns=np.tile(np.array(dur_ns, float), TWICE),
        is_beside=np.tile(np.array(beside or [False] * count, bool), TWICE),
        is_either=np.tile(np.array(either or [True] * count, bool), TWICE),
    )


LAUNCHES = [SHORT, LONG, LONG, SHORT, SHORT, LONG, SHORT, LONG]
USUAL = rank([SHORT, LONG])


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        # The peers run the longer of two kernels of one name beside the communication in which they wait for the first.
        ([rank([1.2 * SHORT, 1.2 * LONG]), *[rank([SHORT, LONG], beside=[False, True])] * 3], [1.2, 1.0, 1.0, 1.0]),
        ([rank([SHORT, 5 * LONG], either=[True, False]), USUAL, USUAL], [1.0] * 3),  # beside communication in part
        # A few launches more: their mean holds more of the long ones, the rank is not slow and its peer not fast.
        ([rank([SHORT, SHORT, LONG, LONG]), rank([SHORT, SHORT, LONG])], [np.nan] * 2),
        (
            [rank([SHORT] * 3), rank([SHORT] * 4), rank([2 * SHORT] * 5)],
            [np.nan] * 3,
        ),  # all launch it differently often
        # Each lacks the record of another launch, after which every place holds other work.
        ([rank(LAUNCHES[:1] + LAUNCHES[2:]), rank(LAUNCHES[:5] + LAUNCHES[6:])], [1.0] * 2),
        ([rank([SHORT]), rank([])], [np.nan] * 2),  # what one rank alone runs has no typical time
    ],
)
def test_kernels_are_compared_at_one_place_in_one_company(ranks: list[Kernels], expected: list[float]) -> None:
    """Expected: the time of each rank's kernels over what they should take, all steps together."""
    found = compared(ranks, TWICE)
    factors = [each.took_ns.sum() / each.expected_ns.sum() if each.took_ns.any() else np.nan for each in found]
    assert factors == pytest.approx(expected, nan_ok=True)


def test_a_step_that_is_longer_on_all_ranks_makes_nobody_slow() -> None:
    found = compared([replace(USUAL, dur_ns=np.where(USUAL.step == 1, 1.5 * USUAL.dur_ns, USUAL.dur_ns))] * 3, TWICE)
    assert all(each.took_ns.sum(axis=0) == pytest.approx(each.expected_ns.sum(axis=0)) for each in found)


def test_places_are_counted_in_the_order_of_launches(labelled: Runs) -> None:
    facts = labelled("straggler.compute").job.ranks[0]
    steps = len(facts.steps)
    kernels = kernels_by_place(facts, steps)
    for name in range(len(kernels.names)):
        for step in range(steps):
            mine = kernels.place[(kernels.name == name) & (kernels.step == step)]
            assert sorted(mine.tolist()) == list(range(len(mine)))


@pytest.mark.parametrize(
    ("name", "position", "kind"),
    [("hot expert", 3, "experts"), ("hot expert, with shapes", 0, "experts"), ("hot table", 1, "embedding tables")],
)
def test_who_is_asked_for_more(labelled: Runs, name: str, position: int, kind: str) -> None:
    ranks, fault = labelled(name).job.ranks, labelled(name).fault
    (shard,) = hot_shards(ranks)
    assert (shard.position, shard.kind) == (position, kind)
    more = 1 + fault["magnitude"]
    assert shard.of_mean == pytest.approx(len(ranks) * more / (len(ranks) - 1 + more), rel=0.05)
    assert shard.excess_us * (1 - 1 / len(ranks)) == pytest.approx(fault["recoverable_us"], rel=0.1)  # max - mean


@pytest.mark.parametrize(
    "name", ["slow device among experts", "device short of power among experts", "healthy experts", "clean.ddp"]
)
def test_slow_devices_are_no_hot_shards(labelled: Runs, name: str) -> None:
    assert hot_shards(labelled(name).job.ranks) == ()


def test_a_rank_that_is_sent_more_is_hot_although_all_its_experts_take_longer(labelled: Runs) -> None:
    ranks = list(labelled("device short of power among experts").job.ranks)
    comms = ranks[1].comms  # what it computed for others goes back by every second all-to-all
    back = np.cumsum(comms["op"] == OP_CODE["all_to_all"]) % 2 == 0
    ranks[1] = replace(ranks[1], comms=comms.replace(in_bytes=np.where(back, comms["in_bytes"] * 2, comms["in_bytes"])))
    assert [shard.position for shard in hot_shards(ranks)] == [1]


def stops_of(folder: Path, in_operator: Held = never, in_python: Held = never) -> CpuStops:
    found = cpu_stops(only_run(busy_ranks(folder, in_operator, in_python)).job.ranks)
    assert found is not None
    return found


def test_stops_are_counted_where_they_come_by_chance_in_operators_and_between(tmp_path: Path) -> None:
    found = stops_of(tmp_path / "run", by_chance)
    assert found.total_ns.tolist() == [2 * 4e6, 5 * 4e6]
    assert found.noise_ns == pytest.approx([2**0.5 * 4e6, 5**0.5 * 4e6])
    usual_ns = STEPS * OPERATORS * DUR_US * 1e3
    assert found.stretch == pytest.approx([8e6 / usual_ns, 20e6 / usual_ns])
    for us, total_ns in ((3_000.0, 11e6), (40_000.0, 8e6)):  # a stop between two operators, and sleep
        once = lambda *at, us=us: us * (at == (0, 1, 4))  # noqa: E731
        assert stops_of(tmp_path / f"{us}", by_chance, once).total_ns.tolist() == [total_ns, 20e6]


@pytest.mark.parametrize(
    "held",
    [
        lambda rank, step, number: 4_000.0 * rank,  # a slow device
        lambda rank, step, number: 4_000.0 if rank and number == 3 else 0.0,  # one operator has more to do
        lambda rank, step, number: 1_000.0 if rank and step % 3 == number else 0.0,  # less than a slice
        lambda rank, step, number: 6_000.0 if (step + rank) % 3 == 0 else 0.0,  # larger batches in some steps
    ],
)
def test_what_takes_longer_in_most_steps_was_not_stopped(tmp_path: Path, held: Held) -> None:
    assert stops_of(tmp_path / "run", held).total_ns.tolist() == [0.0, 0.0]


def test_one_rank_and_a_device_rank_have_none(tmp_path: Path) -> None:
    first, second = only_run(busy_ranks(tmp_path / "run", by_chance)).job.ranks
    assert cpu_stops([first]) is None
    assert cpu_stops([first, replace(second, host_operators=HOST_OPERATORS.empty())]) is None


@pytest.mark.parametrize(
    ("slept", "lost_us"),
    [
        (lambda rank, step, number: 40_000.0 if rank and number == 3 and step % 3 else 0.0, 40_000 * 4 / 6),
        # In some steps alone, where it outlasts every stop.
        (lambda rank, step, number: 40_000.0 if rank and number == 3 and step % 3 == 1 else 0.0, 80_000 / 6),
        (by_chance, None),  # stops by chance have no place
    ],
)
def test_a_place_that_holds_a_rank_is_told(tmp_path: Path, slept: Held, lost_us: float | None) -> None:
    run = only_run(busy_ranks(tmp_path / "run", by_chance, slept))
    place = lost_us and ("aten::op2", "aten::op3", pytest.approx(lost_us))
    assert [held_between(run.job.ranks, p, run.measures.cpu_stops) for p in (0, 1)] == [None, place]
    fix = "code of rank 1 between aten::op2 and aten::op3"
    assert (not place) or run.report.ranked_findings()[0].fixes[0].setting == fix


@pytest.mark.parametrize(
    ("linear_us", "root_us", "slow", "work"),
    [
        (6_000.0, 9_000.0, 1.0, 1.3),  # rank 1's optimizer has the largest tensor: more work, and no slow core
        (9_000.0, 1_500.0, 1.5, 1.1),  # all its operators take half as long again
    ],
)
def test_a_cpu_ranks_pace_is_that_of_operators_of_equal_shapes(
    tmp_path: Path, linear_us: float, root_us: float, slow: float, work: float
) -> None:
    def chore(linear_us: float, root_us: float) -> Chore:
        def run(script: Script) -> None:
            script.host("aten::addmm", linear_us, **{"Input Dims": [[96], [96, 384], [384, 96]]})
            script.host("aten::sqrt", root_us)

        return run

    loads = chore(6_000.0, 1_000.0), chore(linear_us, root_us)
    ranks = [cpu_loop(tmp_path, before=each, rank=number) for number, each in enumerate(loads)]
    compute, every = compute_slowdown(ranks, None), work_slowdown(ranks, None)
    assert compute.factor.tolist() == pytest.approx([1.0, slow], rel=0.02)
    assert every.factor[1] == pytest.approx(work, rel=0.1)

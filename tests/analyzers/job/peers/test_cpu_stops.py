"""When CPU ranks were kept from running, and what else makes operators long."""

from dataclasses import replace
from pathlib import Path

import pytest
from busy_ranks import DUR_US, OPERATORS, STEPS, Held, busy_ranks, by_chance, never
from labelled_runs import only_run

from ddprof.analyzers.facts.operation_tables import HOST_OPERATORS
from ddprof.analyzers.job.peers.cpu_stops import CpuStops, cpu_stops, held_between


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

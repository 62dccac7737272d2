"""A slow CPU rank is priced where it is slow: two gloo ranks whose every instant is known."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from gloo_traces import TENSOR, Events, annotation, operator, transfer, write
from labelled_runs import only_run

TRANSFER_US, CALL_US, STEPS = 200.0, 50.0, 6
Work = Sequence[Sequence[float]]  # per rank and segment: microseconds of operators before the collective that ends it
EVEN, HOST = [5000.0, 2000.0, 8000.0, 3000.0], [300.0] * 4
PLACES = [(f"straggler.{kind}", place) for kind in ("compute", "host") for place in range(4)]


def written(folder: Path, work_us: Work, host_us: Work | None = None) -> float:
    """One trace per rank; a step ends with its last collective. `host_us`: time without operators. Returns the step."""
    host_us = host_us or [[0.0] * len(row) for row in work_us]
    ranks = range(len(work_us))
    now = [0.0 for _ in ranks]
    events: list[Events] = [[] for _ in ranks]
    for step in range(STEPS):
        began = list(now)
        for segment in range(len(work_us[0])):
            for rank in ranks:
                now[rank] += host_us[rank][segment]
                events[rank].append(operator(rank, "aten::mm", now[rank], work_us[rank][segment]))
                now[rank] += work_us[rank][segment]
                events[rank].append(operator(rank, "c10d::_allgather_base_", now[rank], CALL_US, **TENSOR))
            ended = max(now) + CALL_US + TRANSFER_US
            for rank in ranks:
                events[rank].append(transfer(rank, "gloo:all_gather", now[rank] + 10, ended - now[rank] - 10, **TENSOR))
            now = [ended for _ in ranks]
        for rank in ranks:
            events[rank].append(annotation(rank, f"ProfilerStep#{step}", began[rank], now[rank] - began[rank]))
    write(folder, events)
    return now[0] / STEPS


def predicted(folder: Path, rule: str) -> tuple[float, tuple[int, ...]]:
    """The step without the cause (us), and who is accused."""
    run = only_run(folder)
    finding = next(f for f in run.report.findings if f.id == rule)
    return run.report.steps.wall_us - finding.recoverable_us.value, finding.ranks


def longer(times_us: Sequence[float], place: int) -> list[float]:
    """The times with 9 ms more in one place."""
    return [us + 9000.0 * (at == place) for at, us in enumerate(times_us)]


@pytest.mark.parametrize(("rule", "place"), PLACES)
def test_extra_operators_or_a_stall_in_one_place_are_priced_there(tmp_path: Path, rule: str, place: int) -> None:
    slow = (longer(EVEN, place), HOST) if rule == "straggler.compute" else (EVEN, longer(HOST, place))
    without = written(tmp_path, [EVEN, EVEN], [HOST, HOST])
    written(tmp_path, [EVEN, slow[0]], [HOST, slow[1]])
    assert predicted(tmp_path, rule) == (pytest.approx(without, rel=0.02), (1,))


def test_the_slow_rank_may_be_quicker_elsewhere(tmp_path: Path) -> None:
    """The slow rank's own haste gains nothing where its peer is last anyway."""
    written(tmp_path, [[4000.0, 6000.0], [14000.0, 2000.0]])
    without = pytest.approx(4000 + 6000 + 2 * (CALL_US + TRANSFER_US), rel=0.02)
    assert predicted(tmp_path, "straggler.compute") == (without, (1,))

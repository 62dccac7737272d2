"""Kinds of changes, each applied in one way; what makes a CPU rank slow is priced where it is slow."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from gloo_traces import TENSOR, Events, annotation, operator, transfer, write
from labelled_runs import only_run

from ddprof.analyzers.replay.changes.table import KINDS, kind_of
from ddprof.errors import DdprofError
from ddprof.findings import Change

TRANSFER_US, CALL_US, STEPS = 200.0, 50.0, 6
Work = Sequence[Sequence[float]]  # per rank and segment: microseconds of operators before the collective that ends it
EVEN, HOST = [5000.0, 2000.0, 8000.0, 3000.0], [300.0] * 4


def written(folder: Path, work_us: Work, host_us: Work) -> float:
    """One trace per rank; a step ends with its last collective. `host_us`: time without operators. Returns the step."""
    ranks, now = range(len(work_us)), [0.0 for _ in work_us]
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
    report = only_run(folder).report
    finding = next(f for f in report.findings if f.id == rule)
    return report.steps.wall_us - finding.recoverable_us.value, finding.ranks


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("rule", ["straggler.compute", "straggler.host"])
def test_extra_operators_or_a_stall_in_one_place_are_priced_there(tmp_path: Path, rule: str, place: int) -> None:
    without = written(tmp_path, [EVEN, EVEN], [HOST, HOST])
    work_us, host_us = [*EVEN], [*HOST]
    (work_us if rule == "straggler.compute" else host_us)[place] += 9000.0
    written(tmp_path, [EVEN, work_us], [HOST, host_us])
    assert predicted(tmp_path, rule) == (pytest.approx(without, rel=0.02), (1,))


def test_the_slow_rank_may_be_quicker_elsewhere(tmp_path: Path) -> None:
    """The slow rank's own haste gains nothing where its peer is last anyway."""
    written(tmp_path, [[4000.0, 6000.0], [14000.0, 2000.0]], [[0.0, 0.0]] * 2)
    without = pytest.approx(4000 + 6000 + 2 * (CALL_US + TRANSFER_US), rel=0.02)
    assert predicted(tmp_path, "straggler.compute") == (without, (1,))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_applied_in_one_way(name: str) -> None:
    kind = KINDS[name]
    assert sum(how is not None for how in (kind.scenario, kind.retiming, kind.rate)) == 1
    assert set(kind.implies) <= set(KINDS)


def test_an_unknown_kind_is_named_with_the_known_ones() -> None:
    with pytest.raises(DdprofError, match=r"'no_such'; it knows async_launch, .*speed_links$"):
        kind_of(Change("no_such"))

"""CPU ranks that share cores: what computing beside communication costs, and that it goes when communication does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.job.cores import core_contention, crowding_note
from ddprof.analyzers.replay.graph import build_graph
from ddprof.analyzers.replay.price import pricer
from gloo_traces import TENSOR, Events, annotation, operator, transfer, write

from ddprof.findings import Change

STEPS, WORK_US, TRANSFER_US, TAIL_US = 5, 20_000.0, 12_000.0, 4_000.0


def written(folder: Path) -> Path:
    """Two gloo ranks: an all-reduce is called at the start of 20 ms of work and runs beside it for 12 ms."""
    ranks: list[Events] = [[], []]
    for rank, events in enumerate(ranks):
        for step in range(STEPS):
            began = step * (WORK_US + TAIL_US)
            events += [
                operator(rank, "c10d::allreduce_", began + 10, 40, **TENSOR),
                transfer(rank, "gloo:all_reduce", began + 60, TRANSFER_US, **TENSOR),
                operator(rank, "aten::mm", began + 60, WORK_US - 60),
                operator(rank, "aten::add_", began + WORK_US, TAIL_US),
                annotation(rank, f"ProfilerStep#{step}", began, WORK_US + TAIL_US),
            ]
    return write(folder, ranks)


@pytest.mark.parametrize(
    ("ranks", "cores", "expected"), [(2, 2, 1.0), (2, 3, 1 / 3), (2, 4, 0.0), (4, 2, 1.0), (1, 64, 0.0), (None, 2, 0.0)]
)
def test_a_communicating_rank_wants_two_cores(tmp_path: Path, ranks: int | None, cores: int, expected: float) -> None:
    (run,) = load_runs([written(tmp_path)], Options(cache=False))
    known = {"processors": {"usable": cores, "local_ranks": ranks}}
    facts = [replace(f, sidecar=known) for f in run.job.ranks]
    assert core_contention(facts) == pytest.approx(expected)
    assert bool(crowding_note(facts)) == (ranks is not None and ranks > cores)


def test_work_beside_transfers_speeds_up_as_they_shrink(tmp_path: Path) -> None:
    (run,) = load_runs([written(tmp_path)], Options(cache=False))
    measures = run.measures
    alone = pricer(replace(build_graph(run.job), contention=0.0), measures)
    shared = pricer(replace(build_graph(run.job), contention=1.0), measures)
    half, gone = ((Change("scale_transfer", (), (factor,)),) for factor in (0.5, 0.0))
    assert alone.step_us(gone) == pytest.approx(measures.step_us, rel=0.01)  # hidden anyway
    assert measures.step_us - shared.step_us(gone) == pytest.approx(TRANSFER_US / 2, rel=0.05)
    assert measures.step_us - shared.step_us(half) == pytest.approx(TRANSFER_US / 4, rel=0.05)

"""CPU ranks that share cores: what computing beside communication costs, and that it goes when communication does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.job.cores import core_contention, crowding_note
from ddprof.analyzers.replay.graph import build_graph
from ddprof.analyzers.replay.price import pricer

from ddprof.findings import Change

STEPS, WORK_US, TRANSFER_US, TAIL_US = 5, 20_000.0, 12_000.0, 4_000.0


def write(folder: Path) -> None:
    """Two gloo ranks: an all-reduce is called at the start of 20 ms of work and runs beside it for 12 ms."""
    shape = {"Input Dims": [[1000]], "Input type": ["float"]}
    for rank in range(2):
        me, backend = 100 + rank, 1100 + rank
        events = []
        for step in range(STEPS):
            began = step * (WORK_US + TAIL_US)
            events += [
                _span("c10d::allreduce_", began + 10, 40, me, me, **shape),
                _span("gloo:all_reduce", began + 60, TRANSFER_US, me, backend, "user_annotation", **shape),
                _span("aten::mm", began + 60, WORK_US - 60, me, me),
                _span("aten::add_", began + WORK_US, TAIL_US, me, me),
                _span(f"ProfilerStep#{step}", began, WORK_US + TAIL_US, me, me, "user_annotation"),
            ]
        group = {"pg_name": "0", "pg_size": 2, "ranks": [0, 1], "backend_config": "cpu:gloo"}
        told = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_count": 1, "pg_config": [group]}
        content = {"distributedInfo": told, "baseTimeNanoseconds": 10**18, "traceEvents": events}
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(content), encoding="utf-8")


def _span(name: str, ts: float, dur: float, pid: int, tid: int, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


@pytest.mark.parametrize(
    ("ranks", "cores", "expected"), [(2, 2, 1.0), (2, 3, 1 / 3), (2, 4, 0.0), (4, 2, 1.0), (1, 64, 0.0), (None, 2, 0.0)]
)
def test_a_communicating_rank_wants_two_cores(tmp_path: Path, ranks: int | None, cores: int, expected: float) -> None:
    write(tmp_path)
    (run,) = load_runs([tmp_path], Options(cache=False))
    known = {"processors": {"usable": cores, "local_ranks": ranks}}
    facts = [replace(f, sidecar=known) for f in run.job.ranks]
    assert core_contention(facts) == pytest.approx(expected)
    assert bool(crowding_note(facts)) == (ranks is not None and ranks > cores)


def test_work_beside_transfers_speeds_up_as_they_shrink(tmp_path: Path) -> None:
    write(tmp_path)
    (run,) = load_runs([tmp_path], Options(cache=False))
    measures = run.measures
    alone = pricer(replace(build_graph(run.job), contention=0.0), measures)
    shared = pricer(replace(build_graph(run.job), contention=1.0), measures)
    half, gone = ((Change("scale_transfer", (), (factor,)),) for factor in (0.5, 0.0))
    assert alone.step_us(gone) == pytest.approx(measures.step_us, rel=0.01)  # hidden anyway
    assert measures.step_us - shared.step_us(gone) == pytest.approx(TRANSFER_US / 2, rel=0.05)
    assert measures.step_us - shared.step_us(half) == pytest.approx(TRANSFER_US / 4, rel=0.05)

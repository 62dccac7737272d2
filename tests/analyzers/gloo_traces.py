"""Traces of ranks on one gloo group, event by event: for runs of which every instant is known."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labelled_runs import only_run

from ddprof.analyzers.engine import LoadedRun

Events = list[dict[str, Any]]
Play = Callable[[int, float], Events]  # of a rank, in a step that begins then
FIRST = 100  # thread of rank 0, and its process
TENSOR = {"Input Dims": [[1000]], "Input type": ["float"]}


def operator(rank: int, name: str, ts_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    return _span("cpu_op", rank, FIRST + rank, name, ts_us, dur_us, args)


def transfer(rank: int, name: str, ts_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    """A collective on the thread of the backend."""
    return _span("user_annotation", rank, FIRST + 1000 + rank, name, ts_us, dur_us, args)


def annotation(rank: int, name: str, ts_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    """A named range of the training thread: the mark of a step, a message."""
    return _span("user_annotation", rank, FIRST + rank, name, ts_us, dur_us, args)


def all_reduce(rank: int, called_us: float, work_us: float, transfer_us: float) -> Events:
    """Work until an all-reduce is called, which is then waited for."""
    return [
        operator(rank, "aten::mm", called_us - work_us, work_us - 100),
        operator(rank, "c10d::allreduce_", called_us - 60, 50, **TENSOR),
        transfer(rank, "gloo:all_reduce", called_us - 5, transfer_us + 5, **TENSOR),
    ]


def write(folder: Path, ranks: Sequence[Events]) -> Path:
    """The events of each rank as `rank0.pt.trace.json`, ... in `folder`, which is made and returned."""
    folder.mkdir(parents=True, exist_ok=True)
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "pg_size": len(ranks)}
    group["ranks"] = list(range(len(ranks)))
    for rank, events in enumerate(ranks):
        told = {"backend": "gloo", "rank": rank, "world_size": len(ranks), "pg_count": 1, "pg_config": [group]}
        head = {"distributedInfo": told, "host_name": "one", "baseTimeNanoseconds": 10**18}
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps({**head, "traceEvents": events}))
    return folder


def in_steps(folder: Path, steps: int, period_us: float, play: Play, ranks: int = 2) -> LoadedRun:
    """The run of ranks that repeat a step, which is marked; `play` gives the events of a rank in a step."""
    begins_us = [step * period_us for step in range(steps)]

    def mark(rank: int, step: int) -> dict[str, Any]:
        return annotation(rank, f"ProfilerStep#{step}", begins_us[step], period_us)

    played = [
        [event for step, begin_us in enumerate(begins_us) for event in (mark(rank, step), *play(rank, begin_us))]
        for rank in range(ranks)
    ]
    return only_run(write(folder, played))


def _span(cat: str, rank: int, tid: int, name: str, ts: float, dur: float, args: dict[str, Any]) -> dict[str, Any]:
    where = {"pid": FIRST + rank, "tid": tid}
    span = {"ph": "X", "cat": cat, "name": name, **where, "ts": round(ts, 3), "dur": round(dur, 3)}
    return {**span, "args": args} if args else span

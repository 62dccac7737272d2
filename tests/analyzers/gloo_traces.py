"""Traces of ranks on one gloo group, event by event: for runs of which every instant is known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Events = list[dict[str, Any]]
TENSOR = {"Input Dims": [[1000]], "Input type": ["float"]}


def operator(rank: int, name: str, ts_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    """An operator on the training thread."""
    return _span("cpu_op", rank, _thread(rank), name, ts_us, dur_us, args)


def transfer(rank: int, name: str, ts_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    """A collective on the thread of the backend."""
    return _span("user_annotation", rank, _thread(rank) + 1000, name, ts_us, dur_us, args)


def annotation(rank: int, name: str, ts_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    """A named range of the training thread: the mark of a step, a message."""
    return _span("user_annotation", rank, _thread(rank), name, ts_us, dur_us, args)


def write(folder: Path, ranks: Sequence[Events]) -> Path:
    """The events of each rank as `rank0.pt.trace.json`, ... in `folder`, which is made and returned."""
    folder.mkdir(parents=True, exist_ok=True)
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "pg_size": len(ranks)}
    group["ranks"] = list(range(len(ranks)))
    for rank, events in enumerate(ranks):
        told = {"backend": "gloo", "rank": rank, "world_size": len(ranks), "pg_count": 1, "pg_config": [group]}
        content = {
            "distributedInfo": told, "host_name": "one", "baseTimeNanoseconds": 10**18, "traceEvents": events
        }  # fmt: skip
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def _thread(rank: int) -> int:
    return 100 + rank


def _span(
    cat: str, rank: int, thread: int, name: str, ts_us: float, dur_us: float, args: dict[str, Any]
) -> dict[str, Any]:
    where = {"pid": _thread(rank), "tid": thread}
    span = {"ph": "X", "cat": cat, "name": name, **where, "ts": round(ts_us, 3), "dur": round(dur_us, 3)}
    return {**span, "args": args} if args else span

"""Traces read: of given events, of run folders as capture writes them, and of the real ones, sound and broken."""

import json
from pathlib import Path
from typing import Any

import kineto_text as kt
import pytest

from ddprof.errors import NoUsableInput
from ddprof.model import Kind, RankTrace
from ddprof.readers import Inventory, Source, discover, read

MALFORMED, FORMATS = "traces/edge_cases/malformed", "traces/formats"
EVENTS = [kt.span(f"op {i}", i * 1000, 500) for i in range(5)]
BASE_NS = 10**18  # the clock of traces that ranks wrote


def trace_of(path: Path, events: list[Any], layout: str = "compact", header: dict[str, Any] | None = None) -> RankTrace:
    return read(Source(str(kt.write(path, events, layout, header)), "kineto"))


def read_all(inventory: Inventory) -> list[RankTrace]:
    return [read(source) for source in inventory.sources]


def traces(path: Path) -> list[RankTrace]:
    return read_all(discover([path]))


def one_trace(path: Path) -> RankTrace:
    (trace,) = traces(path)
    return trace


def json_trace(path: Path, value: Any) -> RankTrace:
    """The trace of a file of this value as JSON, whoever writes such."""
    path.write_text(json.dumps(value))
    return one_trace(path)


def refusal(*paths: Path | str) -> str:
    """The one line in which `discover` refuses these paths."""
    with pytest.raises(NoUsableInput) as refused:
        discover(paths)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def broken(shared_dir: Path, name: str) -> RankTrace:
    return one_trace(shared_dir / MALFORMED / name)


def healthy(shared_dir: Path, rank: int) -> RankTrace:
    """The sound trace that the broken ones were made from."""
    (path,) = (shared_dir / "traces/multi_rank/dlrm_ddp_v100_8ranks").glob(f"worker{rank}_*")
    return read(Source(str(path), "kineto"))


def issues(trace: RankTrace | Inventory) -> str:
    return "\n".join(f"{h.severity}: {h.issue} -> {h.effect}" for h in trace.health)


def names(trace: RankTrace, kind: Kind) -> list[str]:
    return [trace.strings[n] for n in trace.events["name"][trace.events["kind"] == kind].tolist()]


def times(trace: RankTrace) -> list[tuple[str, int, int, int]]:
    columns = (trace.events[c].tolist() for c in ("name", "ts_ns", "dur_ns", "correlation"))
    return [(trace.strings[n], ts, dur, c) for n, ts, dur, c in zip(*columns, strict=True)]


def file_names(inventory: Inventory) -> list[str]:
    return [Path(source.path).name for source in inventory.sources]


def ranks_of(inventory: Inventory) -> list[tuple[str, int]]:
    return [(label, len(sources)) for label, sources in inventory.runs]


def rank_file(path: Path, rank: int, world_size: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return kt.write(path, EVENTS, header={"distributedInfo": {"rank": rank, "world_size": world_size}})


def recorded(folder: Path, ranks: int = 2) -> Path:
    """A folder of the traces of a job of so many ranks."""
    for rank in range(ranks):
        rank_file(folder / f"rank{rank}.json", rank, ranks)
    return folder


def written_rank(
    stem: Path, rank: int, world: int, events: list[Any], kind: str = "0.pt", base_ns: int = BASE_NS, **more: Any
) -> None:
    """A trace and the sidecar beside it, as the capture writes them."""
    header = {"schemaVersion": 1, "baseTimeNanoseconds": base_ns} if kind == "0.pt" else {}
    kt.write(Path(f"{stem}.{kind}.trace.json"), events, header=header)
    sidecar = {"schema": "ddprof.run/1", "rank": rank, "world_size": world, "host": stem.name.split(".")[1], **more}
    Path(f"{stem}.sidecar.json").write_text(json.dumps(sidecar))


def our_run(folder: Path, windows: int = 2, restarts: int = 1, ranks: int = 2) -> Path:
    """A run folder as the capture writes it."""
    (folder / ".shim").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": "ddprof.run/1", "world_size": ranks}))
    for rank in range(ranks):
        for restart in range(restarts):
            stem = f"rank{rank}.host.{100 + rank + 10 * restart}.{restart}"
            sidecar = {"schema": "ddprof.run/1", "state": "exit", "rank": rank, "world_size": ranks, "restart": restart}
            (folder / f"{stem}.sidecar.json").write_text(json.dumps(sidecar))
            for window in range(windows):
                kt.write(folder / f"{stem}.{window}.pt.trace.json", EVENTS)
                dump = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [{"collective_seq_id": window}]}
                (folder / f"{stem}.{window}.fr.json").write_text(json.dumps(dump))
    return folder

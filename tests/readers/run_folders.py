"""Small traces and run folders as capture writes them."""

from __future__ import annotations

import json
from pathlib import Path

import kineto_text as kt

from ddprof.model import RankTrace
from ddprof.readers import Inventory, read

EVENTS = [kt.span(f"op {i}", i * 1000, 500) for i in range(5)]


def ranks_of(inventory: Inventory) -> list[tuple[str, int]]:
    return [(label, len(sources)) for label, sources in inventory.runs]


def rank_file(path: Path, rank: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return kt.write(path, EVENTS, header={"distributedInfo": {"rank": rank, "world_size": 2}})


def read_all(inventory: Inventory) -> list[RankTrace]:
    return [read(source) for source in inventory.sources]


def our_run(folder: Path, windows: int = 2, restarts: int = 1) -> None:
    """A run folder as the capture writes it."""
    (folder / ".shim").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": "ddprof.run/1", "world_size": 2}))
    for rank in range(2):
        for restart in range(restarts):
            stem = f"rank{rank}.host.{100 + rank + 10 * restart}.{restart}"
            sidecar = {"schema": "ddprof.run/1", "state": "exit", "rank": rank, "world_size": 2, "restart": restart}
            (folder / f"{stem}.sidecar.json").write_text(json.dumps(sidecar))
            for window in range(windows):
                kt.write(folder / f"{stem}.{window}.pt.trace.json", EVENTS)
                dump = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [{"collective_seq_id": window}]}
                (folder / f"{stem}.{window}.fr.json").write_text(json.dumps(dump))

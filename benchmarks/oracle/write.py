"""Write a run to a folder: one trace per rank and the label."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.oracle.kineto import TraceWriter
from benchmarks.oracle.labels import label
from benchmarks.oracle.mess.catalogue import changed, cut
from benchmarks.oracle.simulate import Run

FIRST_FILE_NS = 1764638676000000000
COMPRESSION = 4


def file_name(run: Run, rank: int) -> str:
    """The name of a rank's file, as the profiler's handlers and common scripts choose it."""
    naming, host = run.scenario.format.naming, run.scenario.cluster.hosts[rank]
    if naming == "rank":
        return f"trace_rank{rank}.json.gz"
    if naming == "worker":
        return f"worker{rank}.{FIRST_FILE_NS // 1_000_000 + rank}.pt.trace.json.gz"
    return f"{host}_{4000 + 13 * rank}.{FIRST_FILE_NS + 1234567 * rank}.pt.trace.json.gz"


def zipped(path: Path, data: bytes) -> None:
    """Write a compressed file; a fixed time in its header keeps equal scenarios equal byte for byte."""
    with gzip.GzipFile(path, "wb", COMPRESSION, mtime=0) as stream:
        stream.write(data)


def write(run: Run, folder: str | Path) -> dict[str, Any]:
    """Write `traces/` and `label.json` into `folder` (created if missing); returns the label."""
    target = Path(folder)
    traces = target / "traces"
    traces.mkdir(parents=True, exist_ok=True)
    content = label(run)
    events = size = 0
    for rank in run.ranks:
        if rank.rank in run.scenario.missing_ranks:
            continue
        text = TraceWriter(run, rank, partial(changed, run.scenario)).text()
        data = cut(run.scenario, rank.rank, text.encode())
        events += text.count('"ph"')
        size += len(data)
        zipped(traces / file_name(run, rank.rank), data)
    content |= {"events": events, "bytes": size}
    (target / "label.json").write_text(json.dumps(content, indent=1) + "\n")
    return content

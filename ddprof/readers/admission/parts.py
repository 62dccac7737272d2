"""Files that hold several workers.

One source per worker; of several files about the same run, the one that says most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.formats import horovod, nccl_profiler, nsys, op_timeline, rpd
from ddprof.readers.source import Source

_PARTS: Mapping[str, Callable[[Source], list[str]]] = {
    "horovod": horovod.rank_parts,
    "nccl_profiler": nccl_profiler.rank_parts,
    "nsys": nsys.process_parts,
    "op_timeline": op_timeline.worker_parts,
    "rpd": rpd.device_parts,
}


def split_parts(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    """One source per worker, and notes on files left out because they cannot be read or another one says more."""
    kept, notes = _best_timelines(sources)
    result: list[Source] = []
    for source in kept:
        names = _PARTS.get(source.format)
        parts: list[str] | list[None] = [None]
        try:
            parts = names(source) if names else parts
        except NoUsableInput as error:
            notes.append(HealthNote(str(error), "left out", "error"))
            continue
        result += [replace(source, part=part) for part in parts]
    return result, notes


def _best_timelines(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    timelines = [s for s in sources if s.format == "op_timeline"]
    kept = [s for s in sources if s.format != "op_timeline"]
    notes = []
    with_waits = {os.path.dirname(s.path) for s in timelines if s.path.endswith(".parquet")}
    for source in timelines:
        if not source.path.endswith(".parquet") and op_timeline.is_simulated(source):
            notes.append(HealthNote(f"{source.label}: a simulated timeline, not a measured one", "left out", "info"))
        elif os.path.dirname(source.path) in with_waits and not source.path.endswith(".parquet"):
            issue = f"{source.label}: the parquet file beside it also states the waits"
            notes.append(HealthNote(issue, "that one is used", "info"))
        else:
            kept.append(source)
    return kept, notes

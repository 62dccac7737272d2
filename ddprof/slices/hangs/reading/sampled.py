"""Last sampled stacks of a rank and its loader's workers (docs/run-folder.md)."""

from __future__ import annotations

import os
import re

from ddprof.model import HealthNote
from ddprof.readers.side_files.stacks import read_stacks
from ddprof.slices.hangs.evidence import StackFrame, WorkerEvidence

SUFFIX = ".stacks.jsonl"
_WORKER = re.compile(r"\.worker(\d+)\.\d+\.stacks\.jsonl$")
_RANK_ITSELF = -1  # in place of a worker's number


def seen_last(path: str) -> tuple[WorkerEvidence | None, list[HealthNote]]:
    """Last samples in one file, and notes on unreadable parts; `is_rank` tells whose they are. None without samples."""
    processes, notes = read_stacks([path])
    seen = processes[0].seen_last() if processes else None
    if seen is None:
        return None, notes
    at_ns, frames = seen
    named = _WORKER.search(os.path.basename(path))
    stack = tuple(StackFrame(file, line, function) for file, function, line in frames)
    return WorkerEvidence(int(named[1]) if named else _RANK_ITSELF, at_ns, stack), notes


def is_rank(seen: WorkerEvidence) -> bool:
    """True for the rank's own training thread."""
    return seen.worker == _RANK_ITSELF

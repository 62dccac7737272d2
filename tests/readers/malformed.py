"""Broken inputs among the real traces, and the sound ones they were made from."""

from __future__ import annotations

from pathlib import Path

from ddprof.model import RankTrace
from ddprof.readers import Source, discover, read

FOLDER = "traces/edge_cases/malformed"


def broken(shared_dir: Path, name: str) -> RankTrace:
    (source,) = discover([shared_dir / FOLDER / name]).sources
    return read(source)


def issues(trace: RankTrace) -> str:
    return "\n".join(f"{h.severity}: {h.issue} -> {h.effect}" for h in trace.health)


def healthy(shared_dir: Path, rank: int) -> RankTrace:
    folder = shared_dir / "traces/multi_rank/dlrm_ddp_v100_8ranks"
    (path,) = folder.glob(f"worker{rank}_*")
    return read(Source(str(path), "kineto"))

"""A run that is still being written: what its step rings say now. Nothing is kept between looks."""

from __future__ import annotations

from pathlib import Path

from ddprof.capture.launcher.live import LiveRank, read_ranks
from ddprof.report.model import Ledger, Report, RunInfo, Steps, Verdict


def running_ranks(folder: str) -> list[LiveRank]:
    """The ranks that write to a run folder now; [] for anything else."""
    path = Path(folder)
    return read_ranks(path) if folder and path.is_dir() else []


def waiting_report(folder: str, ranks: list[LiveRank]) -> Report:
    """What can be said of a run before its first trace: who runs."""
    numbers = tuple(rank.rank for rank in ranks)
    info = RunInfo(max(numbers) + 1, numbers, hosts={r.rank: r.host for r in ranks}, name=Path(folder).resolve().name)
    verdict = Verdict("none", "the job is running and has written no trace yet; the page Live shows its steps")
    return Report(info, Steps(0, "none", float("nan")), Ledger(), verdict)

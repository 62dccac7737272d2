"""The ranks of a running job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddprof.capture.launcher.live import LiveRank, read_ranks
from ddprof.errors import NoUsableInput

_SILENT_STEPS, _SILENT_NS = 10, 2_000_000_000  # a rank this long without a step is probably stuck


def ranks_of(run: Path) -> list[LiveRank]:
    """The ranks that write to the run folder. Raises NoUsableInput where none does."""
    ranks = read_ranks(run)
    if not ranks:
        raise NoUsableInput(f"{run}: no rank of a running job (it has ended, or has made no step yet)")
    return ranks


def silent_ranks(ranks: Sequence[LiveRank]) -> list[int]:
    """Ranks without a step for a while."""
    return [r.rank for r in ranks if r.median_ns() and r.age_ns > _SILENT_STEPS * r.median_ns() + _SILENT_NS]

"""Which ranks differ, and in what: each rank's step by cause against the typical rank's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ddprof.causes import CAUSES
from ddprof.report.bar import shares
from ddprof.report.model import Report

MAX_RANKS = 24  # lines that are read at a glance; the ledger's table holds more
LEAST_SHARE = 0.005  # of the step: a cause below this on every rank is no column


@dataclass(frozen=True)
class Deviation:
    """Percent of the step by rank and cause, and percentage points above the typical peer; both (ranks, causes).

    The typical peer is the median rank; of two ranks, the other one.
    """

    ranks: tuple[int, ...]
    causes: tuple[str, ...]
    percent: tuple[tuple[float, ...], ...]
    points: tuple[tuple[float, ...], ...]
    named: frozenset[int]  # culprits of findings
    of: int  # ranks there are


def deviation(report: Report, limit: int = MAX_RANKS, shows: Callable[[int], bool] | None = None) -> Deviation | None:
    """The ranks that `shows` lets pass; above `limit` those a finding names and those that differ most.

    None without a ledger.
    """
    by_rank = {r: shares(row) for r, row in report.ledger.per_rank.items() if shows is None or shows(r)}
    causes = [c for c in CAUSES if any(row.get(c, 0.0) >= LEAST_SHARE for row in by_rank.values())]
    if not causes:
        return None
    peer = {r: {c: _peer(r, c, by_rank) for c in causes} for r in by_rank}
    points = {r: tuple((row.get(c, 0.0) - peer[r][c]) * 100 for c in causes) for r, row in by_rank.items()}
    named = frozenset(r for f in report.findings for r in f.ranks)
    ranks = _most_different(points, named, limit)
    percent = tuple(tuple(by_rank[r].get(c, 0.0) * 100 for c in causes) for r in ranks)
    return Deviation(tuple(ranks), tuple(causes), percent, tuple(points[r] for r in ranks), named, len(by_rank))


def _peer(rank: int, cause: str, by_rank: Mapping[int, Mapping[str, float]]) -> float:
    """What a rank's share is held against: the median of two ranks lies between them, and both would be off it."""
    others = [r for r in by_rank if r != rank] if len(by_rank) == 2 else by_rank
    return statistics.median(by_rank[r].get(cause, 0.0) for r in others)


def _most_different(points: dict[int, tuple[float, ...]], named: frozenset[int], limit: int) -> list[int]:
    order: Sequence[int] = sorted(points, key=lambda r: (r not in named, -max(map(abs, points[r])), r))
    return sorted(order[:limit])

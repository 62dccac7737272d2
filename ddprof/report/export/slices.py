"""Parts of an exported trace that both formats share: slices of ranks, arrows and track names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddprof.model import RankTrace
from ddprof.report.model import Report
from ddprof.tables import NULL, Table


@dataclass(frozen=True)
class RankSlices:
    """One rank to write: its events, the shift to the run's zero time, and its steps."""

    rank: int
    trace: RankTrace
    shift_ns: int
    steps: Table


@dataclass(frozen=True)
class Arrow:
    """A wait: from an event of one rank to an event of another; tracks are rows of the ranks' tracks."""

    from_rank: int
    from_track: int
    from_ns: int  # on the run's clock
    to_rank: int
    to_track: int
    to_ns: int


def rank_label(report: Report, rank: int) -> str:
    """The name of a rank's process."""
    host = report.run.hosts.get(rank)
    return f"rank {rank}" + (f" on {host}" if host else "")


def track_label(track: Mapping[str, Any]) -> str:
    """The name of a track, from its row."""
    if track["stream"] is not None:
        return f"device {track['device']} stream {track['stream']}"
    return str(track["name"] or f"thread {track['tid']}")


def arrows_of(table: Table, rank_ids: tuple[int, ...], shifts_ns: list[int], chosen: set[int]) -> Iterator[Arrow]:
    """Arrows between the chosen ranks, on the run's clock, from a table of waits (culprit, victim, tracks, times)."""
    for row in table.rows():
        culprit, victim = row["culprit"], row["victim"]
        if {rank_ids[culprit], rank_ids[victim]} <= chosen and NULL not in (row["culprit_track"], row["victim_track"]):
            yield Arrow(
                rank_ids[culprit],
                row["culprit_track"],
                row["culprit_ns"] - shifts_ns[culprit],
                rank_ids[victim],
                row["victim_track"],
                row["victim_ns"] - shifts_ns[victim],
            )

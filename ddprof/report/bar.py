"""The step as a stacked bar of text cells, one colour per cause."""

from __future__ import annotations

from collections.abc import Mapping

from ddprof.causes import CAUSES
from ddprof.units import format_share, format_us


def shares(row: Mapping[str, float]) -> dict[str, float]:
    """Share of the step of each cause that a ledger row has, in stacking order; {} where there is no wall time."""
    wall = row.get("wall_us", 0.0)
    if not wall > 0:
        return {}
    return {cause: row[cause] / wall for cause in CAUSES if row.get(cause, 0.0) > 0}


def title_words(row: Mapping[str, float], cause: str) -> str:
    """Tooltip of one part of the bar: cause, time, share."""
    return f"{CAUSES[cause].label}: {format_us(row[cause])}, {format_share(row[cause] / row['wall_us'])}"


def legend_words(row: Mapping[str, float], cause: str) -> str:
    """Legend entry of one part of the bar: cause, time, share."""
    return f"{CAUSES[cause].label} {format_us(row[cause])} ({format_share(row[cause] / row['wall_us'])})"


def cells(parts: Mapping[str, float], width: int) -> dict[str, int]:
    """Cells per cause of a bar `width` wide, by largest remainders, which sum exactly; shares sum to at most 1."""
    exact = {cause: share * width for cause, share in parts.items()}
    counts = {cause: int(value) for cause, value in exact.items()}
    left = round(sum(exact.values())) - sum(counts.values())
    for cause in sorted(exact, key=lambda c: counts[c] - exact[c])[: max(left, 0)]:
        counts[cause] += 1
    return {cause: count for cause, count in counts.items() if count}

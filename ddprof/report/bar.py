"""The step as one stacked bar: which cause fills how many cells, and the one palette of the product.

Colours: the light set was chosen for contrast (WCAG, >= 3 on white) and colour-blind distance; the dark set keeps the
hues. A letter marks each cause besides, so that colour is never alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddprof.report.model import CAUSES


@dataclass(frozen=True)
class Look:
    """How a cause is drawn: letter, colour on a light and on a dark ground."""

    letter: str
    light: str
    dark: str


LOOKS: Mapping[str, Look] = {
    "compute": Look("C", "#1F6FEB", "#5B9DFF"),
    "comm_transfer": Look("T", "#D9480F", "#FF8A4C"),
    "comm_wait": Look("W", "#A61E4D", "#FF6B9A"),
    "memcpy": Look("M", "#D073B0", "#E9A0D2"),
    "dataloader": Look("D", "#6B4E00", "#D6A825"),
    "host_launch": Look("H", "#1F2430", "#B8C0D0"),
    "host_sync": Look("S", "#5B6472", "#8E99AB"),
    "allocator": Look("A", "#7A3EB1", "#B98CE8"),
    "gc": Look("G", "#007A5A", "#35C79A"),
    "checkpoint": Look("K", "#00788A", "#3FC3D6"),
    "pipeline_bubble": Look("B", "#8A6D3B", "#CBB083"),
    "other": Look("O", "#7D8590", "#7D8590"),
    "unknown": Look("?", "#B0B7C0", "#565E69"),
}


def shares(row: Mapping[str, float]) -> dict[str, float]:
    """Share of the step of each cause that a ledger row has, in stacking order; {} where there is no wall time."""
    wall = row.get("wall_us", 0.0)
    if not wall > 0:
        return {}
    return {cause: row[cause] / wall for cause in CAUSES if row.get(cause, 0.0) > 0}


def cells(parts: Mapping[str, float], width: int) -> dict[str, int]:
    """Cells of a bar of `width` for shares that sum to at most 1: largest remainders, so that the sum is exact."""
    exact = {cause: share * width for cause, share in parts.items()}
    counts = {cause: int(value) for cause, value in exact.items()}
    left = round(sum(exact.values())) - sum(counts.values())
    for cause in sorted(exact, key=lambda c: counts[c] - exact[c])[: max(left, 0)]:
        counts[cause] += 1
    return {cause: count for cause, count in counts.items() if count}

"""Heatmaps as SVG: ranks against steps or causes, the number on the cell where there is room."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ddprof.dashboard.figures.charts import Heat
from ddprof.dashboard.figures.scales import cell_digits, strengths
from ddprof.dashboard.figures.svg import frame
from ddprof.report.html.markup import Markup, join, tag
from ddprof.tables import Array

ROW, MAX_COLUMN = 22.0, 84.0
MAX_TITLED_CELLS = 400  # more would make the file large: cells of one shade become one path
SHADES = 16
FULL_OPACITY = 0.6  # the number on it stays readable in both themes


def heatmap(chart: Heat, words: str) -> Markup:
    """Cells shaded by amount, in the colour of what is critical; in a quiet one where less is lost."""
    values, count = chart.values, len(chart.columns)
    left = frame.label_width(chart.lines)
    wide = min(MAX_COLUMN, (frame.END - left) / max(1, count))
    bottom = 4 + ROW * len(chart.lines)
    few = values.size <= MAX_TITLED_CELLS
    strength = strengths(chart)
    cells = _cells(chart, strength, left, wide) if few else _paths(strength, left, wide)
    names = frame.names_at_left(chart.lines, left, lambda i: 4 + ROW * (i + 0.5))
    heads, depth = _heads(chart.columns, left, wide, bottom)
    axis = [frame.text(chart.axis, left + wide * count / 2, bottom + depth + 12, "middle")] if chart.axis else []
    height = bottom + depth + (18 if chart.axis else 4)
    return join(frame.svg(height, words, *cells, *names, *heads, *axis), _key(chart))


def _cells(chart: Heat, strength: Array, left: float, wide: float) -> list[Markup]:
    values, found = chart.values, []
    digits = cell_digits(values)
    for i, name in enumerate(chart.lines):
        for j, head in enumerate(chart.columns):
            value = float(values[i, j])
            if not math.isfinite(value):
                continue
            x, y = left + wide * j, 4 + ROW * i
            said = tag("title", f"{name}, {head}: {value:.4g} {chart.unit}")
            found.append(
                tag(
                    "rect",
                    said,
                    x=round(x + 0.5, 1),
                    y=y + 0.5,
                    width=round(wide - 1, 1),
                    height=ROW - 1,
                    style=_shade(float(strength[i, j])),
                )
            )
            number = f"{value:.{digits}f}"
            if len(number) * frame.CHAR < wide - 2:
                found.append(frame.text(number, x + wide / 2, y + ROW / 2 + 4, "middle"))
    return found


def _paths(strength: Array, left: float, wide: float) -> list[Markup]:
    """All cells of one shade as one path."""
    level = np.where(np.isfinite(strength), np.round(np.nan_to_num(strength) * SHADES), np.nan)
    found = []
    for shade in np.unique(level[np.isfinite(level)]).tolist():
        outline = [frame.box(left + wide * j, 4 + ROW * i, wide, ROW) for i, j in np.argwhere(level == shade).tolist()]
        found.append(tag("path", d="".join(outline), style=_shade(shade / SHADES)))
    return found


def _side(strength: float) -> str:
    return "critical" if strength > 0 else "quiet"


def _shade(strength: float) -> str:
    return f"fill:var(--{_side(strength)});fill-opacity:{FULL_OPACITY * abs(strength):.3f}"


def _heads(columns: Sequence[str], left: float, wide: float, bottom: float) -> tuple[list[Markup], float]:
    """Column names below, aslant where they do not fit; and the depth they need."""
    longest = max((len(name) for name in columns), default=1) * frame.CHAR + 6
    if longest <= wide:
        return [frame.text(n, left + wide * (j + 0.5), bottom + 15, "middle") for j, n in enumerate(columns)], 22.0
    if longest <= 40:  # numbers: every k-th
        every = math.ceil(longest / wide)
        shown = range(0, len(columns), every)
        return [frame.text(columns[j], left + wide * (j + 0.5), bottom + 15, "middle") for j in shown], 22.0
    found = []
    for j, name in enumerate(columns):
        x, y = left + wide * (j + 0.5) + 4, bottom + 14
        found.append(frame.text(frame.fitted(name, 150), x, y, "end", transform=f"rotate(-32 {x:.1f} {y:.1f})"))
    return found, 16 + min(150.0, longest) * 0.55


def _key(chart: Heat) -> Markup:
    """What the colours mean, in words and three samples."""
    unit = "points off the typical peer" if chart.shade is not None else chart.unit
    sign = "+" if chart.diverging else ""
    samples = [
        (strength, f"{strength * chart.critical:{sign if strength else ''}.3g}")
        for strength in ((-1.0, 0.0, 1.0) if chart.diverging else (0.0, 0.5, 1.0))
    ]
    items = [
        tag("li", tag("span", class_="shade", style=_background(strength)), f"{words} {unit}{_more(strength)}")
        for strength, words in samples
    ]
    return tag("ul", *items, class_="legend")


def _more(strength: float) -> str:
    return " or more" if strength == 1.0 else ""


def _background(strength: float) -> str:
    share = FULL_OPACITY * abs(strength) * 100
    return f"background:color-mix(in srgb,var(--{_side(strength)}) {share:.0f}%,var(--ground))"

"""Heatmaps: ranks against steps or causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ddprof.dashboard.figures.charts import Heat
from ddprof.dashboard.figures.plotly.base import Palette, figure, label
from ddprof.dashboard.figures.scales import cell_digits, strengths
from ddprof.tables import Array

MAX_CELLS_WITH_TEXT = 250
LINE_PX, MAX_HEIGHT_PX = 24, 900
SHORT_CHARS, SLANTED_PX = 8, 60  # long names of columns stand aslant where there is little room
COLUMN_PX, NARROW_BELOW_COLUMNS = 120, 6  # a few columns are not stretched over the page
CHAR_PX = 7  # mean width of a character of the 13 px font


def heatmap(chart: Heat, colors: Palette) -> go.Figure:
    """Lines against columns; the number stands on the cell where there is room."""
    values, lines, columns = chart.values, chart.lines, chart.columns
    slanted = SLANTED_PX if len(columns) > 3 and max(map(len, columns)) > SHORT_CHARS else 0
    height = min(MAX_HEIGHT_PX, max(150, LINE_PX * len(lines) + 80)) + slanted
    drawn = figure(colors, "", "", int(height))
    shown = strengths(chart)
    written = values.size <= MAX_CELLS_WITH_TEXT and LINE_PX * len(lines) + 80 <= MAX_HEIGHT_PX
    names, heads = [label(line) for line in lines], [label(c) for c in columns]
    drawn.add_heatmap(
        z=_plain(shown),
        x=heads,
        y=names,
        customdata=_plain(values),
        colorscale=colors.heat,
        zmin=-1.0,
        zmax=1.0,
        colorbar={"title": {"text": chart.unit}, "thickness": 12, **_bar_ticks(chart)},
        showscale=not written,
        hovertemplate="%{y}, %{x}: %{customdata:.4g} " + chart.unit + "<extra></extra>",
        xgap=1,
        ygap=1,
    )
    cells = f"cells: {chart.unit}, full colour from {chart.critical:.3g}"
    title = f"{chart.axis}; {cells}".removeprefix("; ") if written else chart.axis
    drawn.update_xaxes(title={"text": title, "standoff": 8})  # below names that a narrow window turns upright
    if written:
        _write(drawn, values, _takes_black(shown, colors.dark), heads, names)
    drawn.update_layout(showlegend=False)
    drawn.update_yaxes(range=[len(lines) - 0.5, -0.5], type="category")
    drawn.update_xaxes(range=[-0.5, len(columns) - 0.5], type="category", side="bottom")
    if len(columns) < NARROW_BELOW_COLUMNS:
        width = max(COLUMN_PX * len(columns), CHAR_PX * len(title)) + 160
        drawn.update_layout(meta={"max_width_px": width})  # kept by cards.exhibit_card
    return drawn


def _plain(values: Array) -> list[list[float | None]]:
    return [[None if not np.isfinite(v) else float(v) for v in row] for row in values]


def _bar_ticks(chart: Heat) -> dict[str, Any]:
    """The amounts that stand at the scale's ends and middle."""
    at = [-1.0, 0.0, 1.0] if chart.diverging else [0.0, 1.0]
    words = [f"{place * chart.critical:.3g}" for place in at]
    return {"tickmode": "array", "tickvals": at, "ticktext": [*words[:-1], f"{words[-1]} or more"]}


def _takes_black(strength: Array, dark: bool) -> Array:
    """Whether black is readable on a cell; plotly's own choice is too faint in between. The limits are where black and
    white have the same contrast on the scale (4.5)."""
    return np.zeros(strength.shape, bool) if dark else strength < 0.82


def _write(chart: go.Figure, values: Array, black: Array, heads: Sequence[str], names: Sequence[str]) -> None:
    """Numbers on the cells."""
    digits = cell_digits(values)
    cells = [(i, j) for i in range(len(names)) for j in range(len(heads)) if np.isfinite(values[i, j])]
    chart.add_scatter(
        x=[heads[j] for _, j in cells],
        y=[names[i] for i, _ in cells],
        text=[f"{values[c]:.{digits}f}" for c in cells],
        mode="text",
        textfont={"size": 12, "color": ["#111418" if black[c] else "#ffffff" for c in cells]},
        hoverinfo="skip",
    )

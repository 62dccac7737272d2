"""Heatmaps: ranks against steps or causes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from ddprof.dashboard.figures.base import Palette, figure, label

from ddprof.tables import Array

MAX_CELLS_WITH_TEXT = 200


def heatmap(
    values: Array,
    columns: Sequence[str],
    lines: Sequence[str],
    colors: Palette,
    unit: str,
    diverging: bool = False,
    axis: str = "",
) -> go.Figure:
    """`values` (lines, columns), NaN where nothing is known. Differences use a scale centred on zero."""
    chart = figure(colors, axis, "", int(min(900, max(170, 24 * len(lines) + 100))))
    known = np.abs(values[np.isfinite(values)])
    most = float(known.max()) if len(known) else 1.0
    written = values.size <= MAX_CELLS_WITH_TEXT
    text = [["" if not np.isfinite(v) else f"{v:.3g}" for v in row] for row in values]
    chart.add_heatmap(
        z=[[None if not np.isfinite(v) else float(v) for v in row] for row in values],
        x=[label(c) for c in columns],
        y=[label(line) for line in lines],
        colorscale=colors.diverging if diverging else colors.sequential,
        zmin=-most if diverging else 0.0,
        zmax=most or 1.0,
        text=text if written else None,
        texttemplate="%{text}" if written else None,
        colorbar={"title": {"text": unit}, "thickness": 12},
        showscale=not written,
        hovertemplate="%{y}, %{x}: %{z:.4g} " + unit + "<extra></extra>",
        xgap=1,
        ygap=1,
    )
    chart.update_yaxes(autorange="reversed", type="category")
    chart.update_xaxes(type="category", side="bottom")
    return chart

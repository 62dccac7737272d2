"""Bars: stacked parts, amounts with their range, a waterfall from the step of today to the step after."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import plotly.graph_objects as go

from ddprof.dashboard.figures.charts import Columns, Ranges, Stacked
from ddprof.dashboard.figures.plotly.base import PATTERNS, Palette, figure, label, name_lines

BAR_HEIGHT, LEGEND_LINE = 26, 21


def stacked(chart: Stacked, colors: Palette) -> go.Figure:
    """One bar per label, stacked by part. Parts that are zero everywhere are left out."""
    listed = LEGEND_LINE * len(chart.drawn_parts) + 90  # on a narrow window each part has a line of the legend
    height = max(180, listed, BAR_HEIGHT * len(chart.labels) + 110) if chart.horizontal else 320
    titles = (chart.unit, chart.axis) if chart.horizontal else (chart.axis, chart.unit)
    drawn = figure(colors, *titles, min(height, 900))
    names = name_lines(drawn, chart.labels) if chart.horizontal else [label(text) for text in chart.labels]
    for part in chart.drawn_parts:
        x, y = (list(part.values), list(range(len(names)))) if chart.horizontal else (names, list(part.values))
        pattern = {"shape": PATTERNS.get(part.key, ""), "solidity": 0.25, "fillmode": "overlay"}
        drawn.add_bar(
            x=x,
            y=y,
            customdata=names,
            orientation="h" if chart.horizontal else "v",
            name=label(part.words),
            marker={"color": colors.value(part.color), "pattern": pattern},
            hovertemplate=_hover(chart.unit, chart.horizontal),
        )
    drawn.update_layout(barmode="stack", bargap=0.25)
    if not chart.horizontal:
        drawn.update_xaxes(type="category")
    return drawn


def _hover(unit: str, horizontal: bool) -> str:
    return f"%{{fullData.name}}: %{{{'x' if horizontal else 'y'}:.4g}} {unit}<extra>%{{customdata}}</extra>"


def ranges(chart: Ranges, colors: Palette) -> go.Figure:
    """One bar per label with a whisker from low to high."""
    drawn = figure(colors, chart.unit, "", max(160, 34 * len(chart.labels) + 70))
    drawn.add_bar(
        x=list(chart.value),
        y=list(range(len(chart.labels))),
        customdata=name_lines(drawn, chart.labels),
        orientation="h",
        marker={"color": colors.accent},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [h - v for h, v in zip(chart.high, chart.value, strict=True)],
            "arrayminus": [v - lo for v, lo in zip(chart.value, chart.low, strict=True)],
            "color": colors.text,
        },
        hovertemplate="%{x:.4g} " + chart.unit + "<extra>%{customdata}</extra>",
    )
    return drawn


def waterfall(labels: Sequence[str], levels: Sequence[float], colors: Palette, unit: str) -> go.Figure:
    """From the first level, change by change, to the last; `labels` has one entry per level, the first is the total."""
    changes = [b - a for a, b in itertools.pairwise(levels)]
    names = [label(text) for text in [*labels, "after all of it"]]
    chart = figure(colors, "", unit, 320)
    chart.add_waterfall(
        x=names,
        y=[levels[0], *changes, levels[-1]],
        measure=["absolute", *("relative" for _ in changes), "total"],
        text=[f"{levels[0]:.4g}", *(f"{c:+.3g}" for c in changes), f"{levels[-1]:.4g}"],
        textposition="outside",
        connector={"line": {"color": colors.grid}},
        decreasing={"marker": {"color": "#00A37A"}},
        increasing={"marker": {"color": colors.critical}},
        totals={"marker": {"color": colors.accent}},
        hovertemplate="%{x}: %{y:.4g} " + unit + "<extra></extra>",
    )
    chart.update_yaxes(rangemode="tozero")
    return chart


def columns(chart: Columns, colors: Palette) -> go.Figure:
    """One upright bar per label, as in a histogram."""
    drawn = figure(colors, "", chart.unit, 280)
    drawn.add_bar(
        x=[label(text) for text in chart.labels],
        y=list(chart.values),
        marker={"color": colors.accent},
        hovertemplate="%{x}: %{y:.4g} " + chart.unit + "<extra></extra>",
    )
    drawn.update_xaxes(type="category")
    drawn.update_layout(bargap=0.1)
    return drawn

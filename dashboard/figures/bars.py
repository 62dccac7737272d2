"""Bars: stacked parts, amounts with their range, a waterfall from the step of today to the step after."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from ddprof.dashboard.figures.base import PATTERNS, Palette, figure, label

BAR_HEIGHT = 26


def stacked(
    labels: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    looks: Mapping[str, tuple[str, str]],
    colors: Palette,
    unit: str,
    horizontal: bool = True,
    axis: str = "",
) -> go.Figure:
    """One bar per label, stacked by part.

    `looks`: part -> (words, colour). Parts that are zero everywhere are left out.
    """
    height = max(180, BAR_HEIGHT * len(labels) + 110) if horizontal else 320
    chart = figure(colors, unit if horizontal else axis, axis if horizontal else unit, min(height, 900))
    shown = [label(text) for text in labels]
    for part, values in parts.items():
        if not any(value > 0 for value in values):
            continue
        words, color = looks[part]
        x, y = (list(values), shown) if horizontal else (shown, list(values))
        marker = {"color": color, "pattern": {"shape": PATTERNS.get(part, ""), "solidity": 0.25, "fillmode": "overlay"}}
        chart.add_bar(
            x=x,
            y=y,
            orientation="h" if horizontal else "v",
            name=label(words),
            marker=marker,
            hovertemplate=_hover(unit, horizontal),
        )
    chart.update_layout(barmode="stack", bargap=0.25)
    if horizontal:
        chart.update_yaxes(autorange="reversed", type="category")
    else:
        chart.update_xaxes(type="category")
    return chart


def _hover(unit: str, horizontal: bool) -> str:
    amount, name = ("x", "y") if horizontal else ("y", "x")
    return f"%{{fullData.name}}: %{{{amount}:.4g}} {unit}<extra>%{{{name}}}</extra>"


def ranges(
    labels: Sequence[str],
    low: Sequence[float],
    value: Sequence[float],
    high: Sequence[float],
    colors: Palette,
    unit: str,
) -> go.Figure:
    """One bar per label with a whisker from low to high."""
    chart = figure(colors, unit, "", max(160, 34 * len(labels) + 70))
    chart.add_bar(
        x=list(value),
        y=[label(text) for text in labels],
        orientation="h",
        marker={"color": colors.accent},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [h - v for h, v in zip(high, value, strict=True)],
            "arrayminus": [v - lo for v, lo in zip(value, low, strict=True)],
            "color": colors.text,
        },
        hovertemplate="%{x:.4g} " + unit + "<extra>%{y}</extra>",
    )
    chart.update_yaxes(autorange="reversed", type="category")
    return chart


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


def plain(labels: Sequence[str], values: Sequence[float], colors: Palette, unit: str, color: str = "") -> go.Figure:
    """One upright bar per label, as in a histogram."""
    chart = figure(colors, "", unit, 280)
    names = [label(text) for text in labels]
    chart.add_bar(
        x=names,
        y=list(values),
        marker={"color": color or colors.accent},
        hovertemplate="%{x}: %{y:.4g} " + unit + "<extra></extra>",
    )
    chart.update_xaxes(type="category")
    chart.update_layout(bargap=0.1)
    return chart

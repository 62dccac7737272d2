"""Points: steps in time, message size against bandwidth, clock offsets with their error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from ddprof.dashboard.figures.base import Palette, figure, label

MAX_POINTS = 2000
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
_SERIES = ("compute", "comm_transfer", "gc", "allocator", "dataloader", "memcpy", "checkpoint")


def step_dots(step_us: Sequence[float], colors: Palette, height: int = 190) -> go.Figure:
    """One dot per step in ms, the median dashed. Above `MAX_POINTS` every k-th step is drawn."""
    known = [(i, v / 1e3) for i, v in enumerate(step_us) if math.isfinite(v)]
    chart = figure(colors, "step", "ms", height)
    drawn = known[:: math.ceil(len(known) / MAX_POINTS) or 1]
    chart.add_scatter(
        x=[i for i, _ in drawn],
        y=[v for _, v in drawn],
        mode="markers",
        marker={"size": 9, "color": colors.accent},
        hovertemplate="step %{x}: %{y:.4g} ms<extra></extra>",
    )
    if known:
        chart.add_hline(y=statistics.median(v for _, v in known), line={"color": colors.quiet, "dash": "dash"})
    chart.update_yaxes(rangemode="tozero")
    chart.update_xaxes(tickformat="d")
    if len(known) <= 20:
        chart.update_xaxes(dtick=1)
    return chart


def size_against_bandwidth(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], reference: float | None, words: str, colors: Palette
) -> go.Figure:
    """Message size (bytes) against bus bandwidth (GB/s), logarithmic: one symbol per operation, a reference line."""
    chart = figure(colors, "message size (bytes)", "bus bandwidth (GB/s)", 360)
    for number, (name, (sizes, rates)) in enumerate(series.items()):
        every = math.ceil(len(sizes) / MAX_POINTS) or 1
        chart.add_scatter(
            x=list(sizes)[::every],
            y=list(rates)[::every],
            mode="markers",
            name=label(name),
            marker={
                "symbol": _SYMBOLS[number % len(_SYMBOLS)],
                "size": 8,
                "opacity": 0.7,
                "color": colors.cause(_SERIES[number % len(_SERIES)]),
            },
            hovertemplate="%{x:.3s}B at %{y:.3g} GB/s<extra>%{fullData.name}</extra>",
        )
    if reference:
        # A trace, not add_hline: on a logarithmic axis plotly places a shape's annotation at 10 to the power of y.
        ends = [size for sizes, _ in series.values() for size in (min(sizes), max(sizes))]
        line = {"color": colors.quiet, "dash": "dash"}
        chart.add_scatter(x=[min(ends), max(ends)], y=[reference] * 2, mode="lines", name=label(words), line=line)
    chart.update_xaxes(_log_axis([v for sizes, _ in series.values() for v in sizes]))
    chart.update_yaxes(_log_axis([v for _, rates in series.values() for v in rates]))
    chart.update_layout(showlegend=True)
    return chart


def _log_axis(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with its range and ticks stated: few ticks, round numbers."""
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1
    steps = (1,) if high - low > 3 else (1, 2, 5) if high - low > 1 else (1, 1.5, 2, 3, 4, 5, 7)
    ticks = [k * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for k in steps]
    shown = [t for t in ticks if low <= math.log10(t) <= high]
    words = [_short(t) for t in shown]
    return {"type": "log", "range": [low, high], "tickmode": "array", "tickvals": shown, "ticktext": words}


def _short(value: float) -> str:
    """A round number with a metric prefix: 2k, 5M."""
    for power, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= power:
            return f"{value / power:g}{prefix}"
    return f"{value:g}"


def intervals(
    labels: Sequence[str], middle: Sequence[float], half: Sequence[float], colors: Palette, unit: str
) -> go.Figure:
    """One point per label with its error to both sides, zero marked."""
    chart = figure(colors, unit, "", max(150, 26 * len(labels) + 80))
    chart.add_scatter(
        x=list(middle),
        y=[label(text) for text in labels],
        mode="markers",
        marker={"size": 9, "color": colors.accent},
        error_x={"type": "data", "array": list(half), "color": colors.text},
        hovertemplate="%{x:.4g} " + unit + "<extra>%{y}</extra>",
    )
    chart.add_vline(x=0, line={"color": colors.quiet, "dash": "dash"})
    chart.update_yaxes(autorange="reversed", type="category")
    return chart


def dumbbells(
    labels: Sequence[str], before: Sequence[float], after: Sequence[float], colors: Palette, unit: str
) -> go.Figure:
    """Two points per label, joined: an open circle before, a filled diamond after."""
    chart = figure(colors, unit, "", max(180, 28 * len(labels) + 100))
    names = [label(text) for text in labels]
    for name, first, second in zip(names, before, after, strict=True):
        line = {"color": colors.grid, "width": 4}
        chart.add_scatter(
            x=[first, second], y=[name, name], mode="lines", line=line, showlegend=False, hoverinfo="skip"
        )
    for words, values, symbol in (("before", before, "circle-open"), ("after", after, "diamond")):
        chart.add_scatter(
            x=list(values),
            y=names,
            mode="markers",
            name=words,
            marker={"size": 11, "symbol": symbol, "color": colors.accent, "line": {"width": 2}},
            hovertemplate=f"{words}: %{{x:.4g}} {unit}<extra>%{{y}}</extra>",
        )
    chart.update_yaxes(autorange="reversed", type="category")
    return chart


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float | None], str]],
    limit: float | None,
    words: str,
    colors: Palette,
    x_title: str,
    y_title: str,
) -> go.Figure:
    """Lines over time, name -> (x, y, dash style), and a dashed limit where it is known."""
    chart = figure(colors, x_title, y_title, 320)
    shades = (colors.cause("compute"), colors.cause("allocator"), colors.cause("gc"), colors.cause("comm_transfer"))
    for number, (name, (x, y, dash)) in enumerate(series.items()):
        line = {"color": shades[number % len(shades)], "width": 2, "dash": dash}
        hover = "%{x:.4g}: %{y:.4g}<extra>%{fullData.name}</extra>"
        chart.add_scatter(x=list(x), y=list(y), mode="lines", name=label(name), line=line, hovertemplate=hover)
    ends = [v for x, _, _ in series.values() for v in (x[0], x[-1]) if len(x)]
    if limit is not None and ends:
        line = {"color": colors.critical, "dash": "dash"}
        chart.add_scatter(x=[min(ends), max(ends)], y=[limit] * 2, mode="lines", name=label(words), line=line)
    chart.update_yaxes(rangemode="tozero")
    chart.update_layout(showlegend=True)
    return chart

"""Points: steps in time, message size against bandwidth, clock offsets with their error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from ddprof.dashboard.figures.charts import Bandwidths, Curves, Dots, Dumbbells, Forecasts, Intervals
from ddprof.dashboard.figures.plotly.base import Palette, figure, label, name_lines
from ddprof.dashboard.figures.scales import (
    CURVE_COLORS,
    SERIES_COLOR,
    dot_words,
    forecast_range,
    log_ticks,
    short_number,
    spread,
)

MAX_POINTS = 2000
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


def step_dots(chart: Dots, colors: Palette, height: int = 220) -> go.Figure:
    """One dot per rank and step in ms, the median dashed; those that stand out are diamonds."""
    drawn = figure(colors, "step", "ms", height)
    outliers = set(chart.outliers)
    at, words = spread(chart), dot_words(chart)
    kinds = (("circle", colors.accent, False), ("diamond", colors.critical, True))
    for symbol, color, stands_out in kinds:
        places = [i for i in range(len(at)) if (i in outliers) is stands_out]
        drawn.add_scatter(
            x=[at[i] for i in places],
            y=[chart.values[i] for i in places],
            mode="markers",
            text=[words[i] for i in places],
            name="stands out" if stands_out else "",
            marker={"size": 10 if stands_out else 7, "color": color, "symbol": symbol, "opacity": 0.8},
            hovertemplate="%{text}: %{y:.4g} ms<extra></extra>",
        )
    drawn.add_hline(y=chart.median, line={"color": colors.quiet, "dash": "dash"})
    drawn.update_yaxes(rangemode="tozero")
    drawn.update_xaxes(tickformat="d")
    drawn.update_layout(showlegend=False)
    if len(set(chart.steps)) <= 20:
        drawn.update_xaxes(dtick=1)
    return drawn


def size_against_bandwidth(chart: Bandwidths, colors: Palette) -> go.Figure:
    """Message size (bytes) against bus bandwidth (GB/s), logarithmic: one symbol per operation, a reference line."""
    drawn = figure(colors, "message size (bytes)", "bus bandwidth (GB/s)", 360)
    for number, (name, (sizes, rates)) in enumerate(chart.series.items()):
        every = math.ceil(len(sizes) / MAX_POINTS) or 1
        drawn.add_scatter(
            x=list(sizes)[::every],
            y=list(rates)[::every],
            mode="markers",
            name=label(name),
            marker={
                "symbol": _SYMBOLS[number % len(_SYMBOLS)],
                "size": 8,
                "opacity": 0.7,
                "color": colors.value(SERIES_COLOR),
            },
            hovertemplate="%{x:.3s}B at %{y:.3g} GB/s<extra>%{fullData.name}</extra>",
        )
    # A trace, not add_hline: on a logarithmic axis plotly places a shape's annotation at 10 to the power of y.
    below = _log_axis([v for sizes, _ in chart.series.values() for v in sizes])
    ends, line = [10.0**power for power in below["range"]], {"color": colors.quiet, "dash": "dash"}
    drawn.add_scatter(x=ends, y=[chart.reference] * 2, mode="lines", name=label(chart.words), line=line)
    drawn.update_xaxes(below)
    drawn.update_yaxes(_log_axis([v for _, rates in chart.series.values() for v in rates]))
    drawn.update_layout(showlegend=True)
    return drawn


def _log_axis(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with its range and ticks stated."""
    low, high, ticks = log_ticks(values)
    words = [short_number(t) for t in ticks]
    return {"type": "log", "range": [low, high], "tickmode": "array", "tickvals": ticks, "ticktext": words}


def intervals(chart: Intervals, colors: Palette) -> go.Figure:
    """One point per label with its error to both sides, zero marked."""
    drawn = figure(colors, chart.unit, "", max(150, 26 * len(chart.labels) + 80))
    drawn.add_scatter(
        x=list(chart.middle),
        y=list(range(len(chart.labels))),
        customdata=name_lines(drawn, chart.labels),
        mode="markers",
        marker={"size": 9, "color": colors.accent},
        error_x={"type": "data", "array": list(chart.half), "color": colors.text},
        hovertemplate="%{x:.4g} " + chart.unit + "<extra>%{customdata}</extra>",
    )
    drawn.add_vline(x=0, line={"color": colors.quiet, "dash": "dash"})
    return drawn


def dumbbells(chart: Dumbbells, colors: Palette) -> go.Figure:
    """Two points per label, joined: an open circle before, a filled diamond after."""
    drawn = figure(colors, chart.unit, "", max(180, 28 * len(chart.labels) + 100))
    names, places = name_lines(drawn, chart.labels), list(range(len(chart.labels)))
    for place, first, second in zip(places, chart.before, chart.after, strict=True):
        line = {"color": colors.grid, "width": 4}
        drawn.add_scatter(
            x=[first, second], y=[place, place], mode="lines", line=line, showlegend=False, hoverinfo="skip"
        )
    for words, values, symbol in (("before", chart.before, "circle-open"), ("after", chart.after, "diamond")):
        drawn.add_scatter(
            x=list(values),
            y=places,
            customdata=names,
            mode="markers",
            name=words,
            marker={"size": 11, "symbol": symbol, "color": colors.accent, "line": {"width": 2}},
            hovertemplate=f"{words}: %{{x:.4g}} {chart.unit}<extra>%{{customdata}}</extra>",
        )
    return drawn


_SHORT_LINE_CHARS = 22  # where a line is high enough for two: leaves room for the marks on a phone
_BESIDE = 0.17  # of a line: predictions lie above its middle, measurements below


def forecasts(chart: Forecasts, colors: Palette) -> go.Figure:
    """Two points per label with their intervals: an open circle predicted, a filled diamond measured; zero marked."""
    drawn = figure(colors, chart.unit, "", max(170, 46 * len(chart.labels) + 90))
    names = name_lines(drawn, chart.labels, _SHORT_LINE_CHARS)
    kinds = (
        ("predicted", chart.predicted, "circle-open", colors.quiet, -_BESIDE),
        ("measured", chart.measured, "diamond", colors.accent, _BESIDE),
    )
    for words, estimates, symbol, color, beside in kinds:
        known = [(place, estimate) for place, estimate in enumerate(estimates) if estimate is not None]
        drawn.add_scatter(
            x=[estimate.value for _, estimate in known],
            y=[place + beside for place, _ in known],
            customdata=[[names[place], *estimate.ends] for place, estimate in known],
            mode="markers",
            name=words,
            marker={"size": 11, "symbol": symbol, "color": color, "line": {"width": 2}},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [estimate.ends[1] - estimate.value for _, estimate in known],
                "arrayminus": [estimate.value - estimate.ends[0] for _, estimate in known],
                "color": color,
            },
            hovertemplate=f"{words}: %{{x:.4g}} {chart.unit} (%{{customdata[1]:.4g}} to %{{customdata[2]:.4g}})"
            "<extra>%{customdata[0]}</extra>",
        )
    drawn.add_vline(x=0, line={"color": colors.quiet, "dash": "dash"})
    drawn.update_xaxes(range=list(forecast_range(chart)))
    return drawn


def curves(chart: Curves, colors: Palette) -> go.Figure:
    """Lines, and a dashed limit where it is known."""
    drawn = figure(colors, chart.x_title, chart.y_title, 320)
    for number, curve in enumerate(chart.curves):
        color = colors.value(CURVE_COLORS[number % len(CURVE_COLORS)])
        line = {"color": color, "width": 2, "dash": "dot" if curve.dotted else "solid"}
        hover = "%{x:.4g}: %{y:.4g}<extra>%{fullData.name}</extra>"
        x, y = list(curve.x), list(curve.y)
        drawn.add_scatter(x=x, y=y, mode="lines", name=label(curve.words), line=line, hovertemplate=hover)
    ends = [at for curve in chart.curves for at in (min(curve.x), max(curve.x)) if len(curve.x)]
    if chart.limit is not None and ends:
        line = {"color": colors.critical, "dash": "dash"}
        x = [min(ends), max(ends)]
        drawn.add_scatter(x=x, y=[chart.limit] * 2, mode="lines", name=label(chart.limit_words), line=line)
    drawn.update_yaxes(rangemode="tozero")
    drawn.update_layout(showlegend=True)
    return drawn

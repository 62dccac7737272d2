"""Points: steps in time, message size against bandwidth, clock offsets with their error, curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ddprof.dashboard.figures.charts import Bandwidths, Curves, Dots, Dumbbells, Forecasts, Intervals
from ddprof.dashboard.figures.plotly.base import Drawn, Key, dashed, label, layout, lines, scatter, var, whiskers
from ddprof.dashboard.figures.scales import (
    CURVE_COLORS,
    SERIES_COLOR,
    dot_words,
    forecast_range,
    log_ticks,
    short_number,
    spread,
)

MAX_POINTS = 2000  # of a curve or an operation
LONG_MS = 10_000.0  # from here on a step is told in seconds
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
_MARKS = "●■◆▲✚✖★"  # the same in a legend
HEADROOM = 1.08  # of the largest value: its dot is drawn whole
_DOTS_PX, _TALL_PX = 230, 330


def step_dots(chart: Dots) -> Drawn:
    """One dot per rank and step, the median dashed; outliers are diamonds."""
    unit, scale = ("s", 1e-3) if chart.median >= LONG_MS else ("ms", 1.0)
    made = layout(_DOTS_PX, "step", unit)
    outliers, at, words = set(chart.outliers), spread(chart), dot_words(chart)
    data = []
    kinds = (("circle", "accent", False), ("diamond", "critical", True))
    for symbol, color, stands_out in kinds:
        places = [i for i in range(len(at)) if (i in outliers) is stands_out]
        x, y = [round(at[i], 3) for i in places], [float(f"{chart.values[i] * scale:.6g}") for i in places]
        marker = {"size": 9 if stands_out else 6.5, "color": var(color), "symbol": symbol, "opacity": 0.8}
        hover = f"%{{text}}: %{{y:.4g}} {unit}<extra></extra>"
        data.append(scatter("markers", x, y, text=[words[i] for i in places], marker=marker, hovertemplate=hover))
    made["shapes"] = [dashed("y", chart.median * scale)]
    made["yaxis"]["range"] = [0.0, HEADROOM * scale * max((*chart.values, chart.median))]
    made["xaxis"] |= {"tickformat": "d", "showgrid": False, "zeroline": False}
    made["xaxis"]["range"] = [min(chart.steps, default=0) - 0.6, max(chart.steps, default=0) + 0.6]
    if len(set(chart.steps)) <= 20:
        made["xaxis"]["dtick"] = 1
    key = [Key("accent", "●", "a step of the job" if chart.ranks is None else "a step of a rank")]
    key += [Key("critical", "◆", "stands out")] if outliers else []
    return Drawn(data, made, (*key, Key("quiet", "–", f"median, {chart.median * scale:.4g} {unit}")))


def size_against_bandwidth(chart: Bandwidths) -> Drawn:
    """Message size (bytes) against bus bandwidth (GB/s), logarithmic: one symbol per operation, a reference line."""
    made = layout(_TALL_PX, "message size (bytes)", "bus bandwidth (GB/s)")
    data, key = [], []
    for number, (name, (sizes, rates)) in enumerate(chart.series.items()):
        every, mark = math.ceil(len(sizes) / MAX_POINTS) or 1, number % len(_SYMBOLS)
        marker = {"symbol": _SYMBOLS[mark], "size": 8, "opacity": 0.7, "color": var(SERIES_COLOR)}
        looks = {"name": label(name), "marker": marker}
        hover = "%{x:.3s}B at %{y:.3g} GB/s<extra>%{fullData.name}</extra>"
        data.append(scatter("markers", sizes[::every], rates[::every], **looks, hovertemplate=hover))
        key.append(Key(SERIES_COLOR, _MARKS[mark], name))
    # A trace and no shape: on a logarithmic axis plotly places a shape at 10 to the power of y.
    below = _log_axis([v for sizes, _ in chart.series.values() for v in sizes])
    made["xaxis"] |= below
    made["yaxis"] |= _log_axis([chart.reference, *(v for _, rates in chart.series.values() for v in rates)])
    data.append(_level([10.0**power for power in below["range"]], chart.reference, chart.words, "quiet"))
    return Drawn(data, made, (*key, Key("quiet", "–", chart.words)))


def _level(ends: Sequence[float], at: float, words: str, color: str) -> dict[str, Any]:
    """A dashed line across the plot."""
    line = {"color": var(color), "dash": "dash", "width": 1.5}
    hover = "%{y:.4g}<extra>%{fullData.name}</extra>"
    return scatter("lines", ends, [at, at], name=label(words), line=line, hovertemplate=hover)


def _log_axis(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with its range and ticks stated."""
    low, high, ticks = log_ticks(values)
    words = [short_number(t) for t in ticks]
    return {"type": "log", "range": [low, high], "tickmode": "array", "tickvals": ticks, "ticktext": words}


def intervals(chart: Intervals) -> Drawn:
    """One point per label with its error to both sides, zero marked."""
    made = lines(chart.labels, chart.unit)
    made["shapes"] = [dashed("x", 0)]
    looks = {
        "customdata": [[label(n), half] for n, half in zip(chart.labels, chart.half, strict=True)],
        "marker": {"size": 8, "color": var("accent")},
        "error_x": whiskers("text", list(chart.half)),
        "hovertemplate": "%{x:.4g} ± %{customdata[1]:.3g} " + chart.unit + "<extra>%{customdata[0]}</extra>",
    }
    return Drawn([scatter("markers", chart.middle, range(len(chart.labels)), **looks)], made)


def dumbbells(chart: Dumbbells) -> Drawn:
    """Two points per label, joined: an open circle before, a filled diamond after."""
    made = lines(chart.labels, chart.unit)
    places, names = list(range(len(chart.labels))), [label(n) for n in chart.labels]
    made["xaxis"]["rangemode"] = "tozero"
    x = [x for a, b in zip(chart.before, chart.after, strict=True) for x in (a, b, None)]
    y = [y for place in places for y in (place, place, None)]
    data = [scatter("lines", x, y, line={"color": var("line"), "width": 4}, hoverinfo="skip")]
    for words, values, symbol in (("before", chart.before, "circle-open"), ("after", chart.after, "diamond")):
        hover = f"{words}: %{{x:.4g}} {chart.unit}<extra>%{{customdata}}</extra>"
        looks = {"customdata": names, "marker": _outlined(symbol, "accent")}
        data.append(scatter("markers", values, places, **looks, hovertemplate=hover))
    return Drawn(data, made, (Key("accent", "○", "before"), Key("accent", "◆", "after")))


def _outlined(symbol: str, color: str) -> dict[str, Any]:
    return {"size": 9, "symbol": symbol, "color": var(color), "line": {"width": 2, "color": var(color)}}


_SHORT_LINE_CHARS = 22  # where a line is high enough for two: leaves room for the marks on a phone
_TWO_PX = 40
_BESIDE = 0.19  # of a line: predictions lie above its middle, measurements below


def forecasts(chart: Forecasts) -> Drawn:
    """Two points per label with their intervals: an open circle predicted, a filled diamond measured; zero marked."""
    made = lines(chart.labels, chart.unit, _TWO_PX, _SHORT_LINE_CHARS)
    made["shapes"] = [dashed("x", 0)]
    made["xaxis"]["range"] = list(forecast_range(chart))
    names, data = [label(n) for n in chart.labels], []
    kinds = (
        ("predicted", chart.predicted, "circle-open", "quiet", -_BESIDE),
        ("measured", chart.measured, "diamond", "accent", _BESIDE),
    )
    for words, estimates, symbol, color, beside in kinds:
        placed = [(place, estimate) for place, estimate in enumerate(estimates) if estimate is not None]
        above = [estimate.ends[1] - estimate.value for _, estimate in placed]
        below = [estimate.value - estimate.ends[0] for _, estimate in placed]
        looks = {
            "customdata": [[names[place], *estimate.ends] for place, estimate in placed],
            "marker": _outlined(symbol, color),
            "error_x": whiskers(color, above, below),
            "hovertemplate": f"{words}: %{{x:.4g}} {chart.unit} (%{{customdata[1]:.4g}} to "
            "%{customdata[2]:.4g})<extra>%{customdata[0]}</extra>",
        }
        y = [place + beside for place, _ in placed]
        data.append(scatter("markers", [estimate.value for _, estimate in placed], y, **looks))
    key = (Key("quiet", "○", "predicted, with its range"), Key("accent", "◆", "measured, with its interval"))
    return Drawn(data, made, key)


def curves(chart: Curves) -> Drawn:
    """Lines, and a dashed limit where known."""
    made = layout(_TALL_PX, chart.x_title, chart.y_title)
    made["yaxis"]["rangemode"] = "tozero"
    data, key = [], []
    for number, curve in enumerate(chart.curves):
        color = CURVE_COLORS[number % len(CURVE_COLORS)]
        every = math.ceil(len(curve.x) / MAX_POINTS) or 1
        line = {"color": var(color), "width": 2, "dash": "dot" if curve.dotted else "solid"}
        hover = "%{x:.4g}: %{y:.4g}<extra>%{fullData.name}</extra>"
        looks = {"name": label(curve.words), "line": line}
        data.append(scatter("lines", curve.x[::every], curve.y[::every], **looks, hovertemplate=hover))
        key.append(Key(color, "┄" if curve.dotted else "━", curve.words))
    ends = [at for curve in chart.curves if len(curve.x) for at in (min(curve.x), max(curve.x))]
    if chart.limit is not None and ends:
        data.append(_level([min(ends), max(ends)], chart.limit, chart.limit_words, "critical"))
        key.append(Key("critical", "–", f"{chart.limit_words}, {chart.limit:.4g} {chart.y_title}"))
    return Drawn(data, made, tuple(key))

"""Points: steps in time, message size against bandwidth, before and after, predicted and measured, curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ddprof.dashboard.figures.charts import Bandwidths, Curves, Dots, Dumbbells, Forecasts, Heat
from ddprof.dashboard.figures.plotly.base import (
    BELOW_PX,
    MOST_WIDTH_PX,
    Drawn,
    Key,
    dashed,
    label,
    layout,
    lines,
    scatter,
    var,
    whiskers,
)
from ddprof.tables import Array
from ddprof.units import format_bytes, format_us

# Colours of causes mean these causes alone; what else is drawn is told apart by symbol and dots.
SERIES_COLOR = "comm-transfer"  # of operations that move data
CURVE_COLORS = ("accent", "quiet")
_LEAST_DECADES = 0.65  # of a logarithmic axis: always two ticks that are round numbers
_DOT_ROOM = 0.7  # of the distance between two steps that the dots of one step share


def forecast_range(chart: Forecasts) -> tuple[float, float]:
    """Ends of the axis: zero, all values and predictions, and measured intervals as long as these keep half of the
    axis. Longer intervals, of few pairs that differ much, are cut: they would press all else flat.
    """
    estimates = [estimate for estimate in (*chart.predicted, *chart.measured) if estimate is not None]
    sure = [0.0, *(e.value for e in estimates), *(end for e in chart.predicted if e is not None for end in e.ends)]
    low, high = min(sure), max(sure)
    span = (high - low) or 1.0
    ends = [end for e in estimates for end in e.ends]
    low, high = max(min((low, *ends)), low - span / 2), min(max((high, *ends)), high + span / 2)
    return low - span * 0.04, high + span * 0.04


def log_ticks(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Range of a logarithmic axis, as powers of ten, and its ticks: few, round numbers. `values` are positive."""
    low, high = math.log10(min(values, default=1.0)) - 0.1, math.log10(max(values, default=1.0)) + 0.1
    room = max(0.0, _LEAST_DECADES - (high - low)) / 2
    low, high = low - room, high + room
    steps: tuple[float, ...] = (1,) if high - low > 3 else (1, 2, 5) if high - low > 1 else (1, 1.5, 2, 3, 4, 5, 7)
    ticks = [k * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for k in steps]
    return low, high, [t for t in ticks if low <= math.log10(t) <= high]


def strengths(chart: Heat) -> Array:
    """Colour strength of a heatmap's cells, in [-1, 1], NaN for unknown values."""
    shaded = chart.values if chart.shade is None else chart.shade
    return np.where(np.isfinite(shaded), np.clip(shaded / (chart.critical or 1.0), -1.0, 1.0), np.nan)


def cell_digits(values: Array) -> int:
    """Decimals of the numbers in cells: enough to give the largest three digits."""
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    return min(6, max(0, 2 - math.floor(math.log10(largest))))


def short_number(value: float) -> str:
    """A round number with a metric prefix: 2k, 5M."""
    for power, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power:
            return f"{value / power:g}{prefix}"
    return f"{value:g}"


def spread(dots: Dots) -> list[float]:
    """Position of each dot on the axis of steps: the ranks of a step stand side by side, in order."""
    if dots.ranks is None:
        return [float(step) for step in dots.steps]
    order = {rank: i for i, rank in enumerate(sorted(set(dots.ranks)))}
    last = max(1, len(order) - 1)
    room = _DOT_ROOM if len(order) > 1 else 0.0
    return [step + (order[rank] / last - 0.5) * room for step, rank in zip(dots.steps, dots.ranks, strict=True)]


def dot_words(dots: Dots) -> list[str]:
    """Tooltip of each dot: "rank 3, step 5"."""
    if dots.ranks is None:
        return [f"step {step}" for step in dots.steps]
    return [f"rank {rank}, step {step}" for rank, step in zip(dots.ranks, dots.steps, strict=True)]


MAX_POINTS = 2000  # of a curve or an operation
LONG_MS = 10_000.0  # from here on a step is told in seconds
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
_MARKS = "●■◆▲✚✖★"  # the same in a legend
MOST_TICKS = 8  # of sizes below a chart of 390 px: "512 KiB" takes 45 px
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
    return Drawn(data, made, (*key, Key("quiet", "–", f"median, {format_us(chart.median * 1e3)}")))


def size_against_bandwidth(chart: Bandwidths) -> Drawn:
    """Message size (bytes) against bus bandwidth (GB/s), logarithmic: one symbol per operation, a reference line."""
    made = layout(_TALL_PX, "message size", "bus bandwidth (GB/s)")
    data, key = [], []
    for number, (name, (sizes, rates)) in enumerate(chart.series.items()):
        every, mark = math.ceil(len(sizes) / MAX_POINTS) or 1, number % len(_SYMBOLS)
        marker = {"symbol": _SYMBOLS[mark], "size": 8, "opacity": 0.7, "color": var(SERIES_COLOR)}
        looks = {"name": label(name), "marker": marker}
        hover = "%{text} at %{y:.3g} GB/s<extra>%{fullData.name}</extra>"
        words = [format_bytes(size) for size in sizes[::every]]
        data.append(scatter("markers", sizes[::every], rates[::every], **looks, text=words, hovertemplate=hover))
        key.append(Key(SERIES_COLOR, _MARKS[mark], name))
    # A trace and no shape: on a logarithmic axis plotly places a shape at 10 to the power of y.
    below = _log_axis([v for sizes, _ in chart.series.values() for v in sizes])
    powers = range(math.ceil(below["range"][0] / math.log10(2)), math.floor(below["range"][1] / math.log10(2)) + 1)
    ticks = [2**power for power in powers[:: 1 + len(powers) // MOST_TICKS]]
    below |= {"tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}
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


# Heatmaps: ranks against steps or causes.

MAX_CELLS_WITH_TEXT = 400  # more numbers cannot be read
LINE_PX, MAX_HEIGHT_PX = 22, 900
SHORT_CHARS, SLANT_DEGREES = 8, 32  # long names of columns stand aslant where there is little room
COLUMN_PX, LEAST_COLUMN_PX = 84, 38  # a few columns are not stretched over the page; a number needs so much
CHAR_PX = 7  # mean width of a character of the 12 px font
HEAD_CHARS = 22


def heatmap(chart: Heat) -> Drawn:
    """Lines against columns; numbers stand on cells where there is room."""
    values, count = chart.values, len(chart.columns)
    longest = max(map(len, chart.columns), default=0)
    is_slanted = count > 2 and longest > SHORT_CHARS
    below = BELOW_PX if chart.axis else BELOW_PX - 22
    if is_slanted:
        below += round(CHAR_PX * min(longest, HEAD_CHARS) * math.sin(math.radians(SLANT_DEGREES)))
    tall = LINE_PX * len(chart.lines) + below
    made = layout(min(MAX_HEIGHT_PX, tall), chart.axis)
    names, heads = [label(line) for line in chart.lines], [label(c) for c in chart.columns]
    beside = CHAR_PX * max(map(len, names), default=0) + 40
    written = values.size <= MAX_CELLS_WITH_TEXT and tall <= MAX_HEIGHT_PX
    places = {"type": "category", "showgrid": False, "zeroline": False}
    made["xaxis"] |= {**places, "range": [-0.5, count - 0.5], "tickangle": 0}
    made["yaxis"] |= {**places, "range": [len(names) - 0.5, -0.5]}
    if tall <= MAX_HEIGHT_PX:
        made["yaxis"]["dtick"] = 1  # each line has room for its name
    if is_slanted:
        short = [label(c, HEAD_CHARS) for c in chart.columns]
        made["xaxis"] |= {"tickmode": "array", "tickvals": heads, "ticktext": short, "tickangle": -SLANT_DEGREES}
    cells = {
        "type": "heatmap",
        "x": heads,
        "y": names,
        "z": _plain(strengths(chart)),
        "customdata": _plain(values),
        "colorscale": [[0.0, var("heat-less")], [0.5, var("ground")], [1.0, var(_most(chart))]],
        "zmin": -1.0,
        "zmax": 1.0,
        "showscale": False,
        "hovertemplate": "%{y}, %{x}: %{customdata:.4g} " + chart.unit + "<extra></extra>",
        "hoverongaps": False,
        "xgap": 1,
        "ygap": 1,
    }
    return Drawn(
        [cells, _numbers(values, heads, names)] if written else [cells],
        made,
        _key(chart),
        min(MOST_WIDTH_PX, beside + max(COLUMN_PX, CHAR_PX * len(chart.axis) // max(1, count)) * count),
        beside + LEAST_COLUMN_PX * count if written else None,
    )


def _numbers(values: Array, heads: list[str], names: list[str]) -> dict[str, Any]:
    """Texts on the cells."""
    digits = cell_digits(values)
    lines, columns = np.nonzero(np.isfinite(values))
    x, y = [heads[j] for j in columns.tolist()], [names[i] for i in lines.tolist()]
    # A zero below zero is written as zero.
    text = [f"{round(value, digits) + 0.0:.{digits}f}" for value in values[lines, columns].tolist()]
    return scatter("text", x, y, text=text, textfont={"size": 12, "color": var("text")}, hoverinfo="skip")


def _plain(values: Array) -> list[list[float | None]]:
    return [[float(f"{v:.5g}") if np.isfinite(v) else None for v in row] for row in values.tolist()]


def _most(chart: Heat) -> str:
    return "heat-less" if chart.is_amount else "heat-more"


def _key(chart: Heat) -> tuple[Key, ...]:
    """Legend of the colours."""
    unit = "points from the typical rank" if chart.shade is not None else chart.unit
    ends = [("heat-less", -1.0), ("ground", 0.0), ("heat-more", 1.0)] if chart.diverging else [("ground", 0.0)]
    ends += [] if chart.diverging else [(_most(chart), 1.0)]
    sign = "+" if chart.diverging else ""
    words = [f"{strength * chart.critical:{sign if strength else ''}.3g} {unit}" for _, strength in ends]
    words[-1] += " or more"
    words[0] += " or less" if chart.diverging else ""
    return tuple(Key(color, "", text) for (color, _), text in zip(ends, words, strict=True))

"""Heatmaps: ranks against steps or causes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ddprof.dashboard.figures.charts import Heat
from ddprof.dashboard.figures.plotly.base import BELOW_PX, MOST_WIDTH_PX, Drawn, Key, label, layout, scatter, var
from ddprof.dashboard.figures.scales import cell_digits, strengths
from ddprof.tables import Array

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

"""Bars: stacked parts, amounts with their range, a waterfall from the present step to the predicted one."""

from __future__ import annotations

import math
from typing import Any

from ddprof.causes import CAUSES
from ddprof.dashboard.figures.charts import Part, Ranges, Stacked, StageChart, Waterfall
from ddprof.dashboard.figures.plotly.base import PALE, Drawn, Key, label, layout, lines, var, whiskers

UPRIGHT_PX, MOST_LYING_PX = 300, 900
GAP = 0.28  # of a line, above and below its bar together
LETTER_PX = 11
# Where a letter stands: on what is as long as it is wide on a phone, as a share of the axis.
LEAST_LYING, LEAST_UPRIGHT, MOST_UPRIGHT_BARS = 0.04, 0.06, 24
SCHEDULE_LINE_PX, SCHEDULE_MOST_PX = 34, 900
LEAST_MARK_PX = 8  # a smaller number cannot be read


def stacked(chart: Stacked) -> Drawn:
    """One bar per label, stacked by part, a letter on each. Parts that are zero everywhere are left out."""
    names = [label(text) for text in chart.labels]
    parts = chart.drawn_parts
    if chart.horizontal:
        made = lines(chart.labels, chart.unit, most_px=MOST_LYING_PX)
    else:
        made = layout(UPRIGHT_PX, chart.axis, chart.unit)
        made["xaxis"] |= {"type": "category", "showgrid": False}
    made |= {"barmode": "stack", "bargap": GAP}
    legend = tuple(Key(part.color, _letter(part), part.words) for part in parts if part.words)
    least = _least_with_letter(chart, parts)
    return Drawn([_bars(chart, part, names, least) for part in parts], made, legend)


def _least_with_letter(chart: Stacked, parts: list[Part]) -> float:
    """The amount from which on a part of a bar has room for its letter."""
    most = max((sum(part.values[i] for part in parts) for i in range(len(chart.labels))), default=0.0)
    if chart.horizontal:
        return most * LEAST_LYING
    return most * LEAST_UPRIGHT if len(chart.labels) <= MOST_UPRIGHT_BARS else math.inf


def _bars(chart: Stacked, part: Part, names: list[str], least: float) -> dict[str, Any]:
    amounts, letter = list(part.values), _letter(part)
    x, y = (amounts, list(range(len(names)))) if chart.horizontal else (names, amounts)
    return {
        **_solid("h" if chart.horizontal else "v", part.color),
        "x": x,
        "y": y,
        "customdata": names,
        "name": label(part.words),
        "text": [letter if amount >= least else "" for amount in amounts],
        "textposition": "inside",
        "constraintext": "none",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": var("on-bar"), "size": LETTER_PX, "weight": "bold"},
        "hovertemplate": ("%{fullData.name}: " if part.words else "")
        + f"%{{{'x' if chart.horizontal else 'y'}:.4g}} {chart.unit}"
        "<extra>%{customdata}</extra>",
    }


def _solid(orientation: str, color: str) -> dict[str, Any]:
    return {"type": "bar", "orientation": orientation, "marker": {"color": var(color), "line": {"width": 0}}}


def _letter(part: Part) -> str:
    """The mark of a part; none on the ground that is left over, which is too pale for one."""
    if part.color == "line":
        return ""
    look = CAUSES.get(part.key)
    return look.letter if look else part.words[:1].upper()


def ranges(chart: Ranges) -> Drawn:
    """One bar per label with a whisker from low to high."""
    ends = list(zip(chart.low, chart.value, chart.high, strict=True))
    above, below = [h - v if h > lo else None for lo, v, h in ends], [v - lo if h > lo else None for lo, v, h in ends]
    bars = {
        **_solid("h", "accent"),
        "x": list(chart.value),
        "y": list(range(len(chart.labels))),
        "customdata": [[label(n), lo, hi] for n, (lo, _, hi) in zip(chart.labels, ends, strict=True)],
        "error_x": whiskers("text", above, below),
        "hovertemplate": "%{x:.4g} " + chart.unit + " (%{customdata[1]:.4g} to %{customdata[2]:.4g})"
        "<extra>%{customdata[0]}</extra>",
    }
    key = (Key("text", "━", chart.line_words),) if chart.line_words else ()
    return Drawn([bars], {**lines(chart.labels, chart.unit), "bargap": GAP}, key)


def waterfall(chart: Waterfall) -> Drawn:
    """Levels change by change: a bar floats from each level to the next."""
    first, last = chart.levels[0], chart.levels[-1]
    moves = list(zip(chart.levels, chart.levels[1:], strict=False))
    low = [0.0, *(min(a, b) for a, b in moves), 0.0]
    tall = [first, *(abs(b - a) for a, b in moves), last]
    words = [f"{first:.4g}", *(f"{b - a:+.3g}" for a, b in moves), f"{last:.4g}"]
    colors = ["accent", *("good" if b <= a else "critical" for a, b in moves), "accent"]
    made = {**layout(UPRIGHT_PX, "", chart.unit), "bargap": 0.35}
    made["xaxis"] |= {"type": "category", "showgrid": False}
    made["yaxis"] |= {"rangemode": "tozero", "range": [0.0, max(chart.levels) * 1.12 or 1.0]}
    bars = {
        "type": "bar",
        "orientation": "v",
        "x": [label(text) for text in (*chart.labels, "after all of it")],
        "y": tall,
        "base": low,
        "marker": {"color": [var(name) for name in colors], "line": {"width": 0}},
        "text": words,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{x}: %{text} " + chart.unit + "<extra></extra>",
    }
    return Drawn([bars], made)


def schedule(chart: StageChart) -> Drawn:
    """One bar per block, at its position in time."""
    made = lines(chart.lines, chart.axis, SCHEDULE_LINE_PX, most_px=SCHEDULE_MOST_PX)
    made |= {"barmode": "overlay", "uniformtext": {"minsize": LEAST_MARK_PX, "mode": "hide"}}
    made["xaxis"]["range"] = [0, max((block.start + block.length for block in chart.blocks), default=1)]
    used = sorted({block.kind for block in chart.blocks})
    data = [_blocks_of_kind(chart, number) for number in used]
    legend = [Key(color, "", words, is_pale) for words, color, is_pale in (chart.kinds[number] for number in used)]
    return Drawn(data, made, tuple(legend), most_width_px=None)


def _blocks_of_kind(chart: StageChart, number: int) -> dict[str, Any]:
    words, color, is_pale = chart.kinds[number]
    blocks = [block for block in chart.blocks if block.kind == number]
    return {
        "type": "bar",
        "orientation": "h",
        "base": [block.start for block in blocks],
        "x": [block.length for block in blocks],
        "y": [block.line for block in blocks],
        "width": 0.8,
        "name": label(words),
        "text": [block.mark for block in blocks],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": var("text" if is_pale else "on-bar")},
        "marker": {"color": var(color), "opacity": PALE if is_pale else 1.0, "line": {"width": 0}},
        "hovertext": [label(block.words) for block in blocks],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }

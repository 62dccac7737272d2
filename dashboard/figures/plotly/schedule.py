"""What runs when, line by line: forward and backward passes of pipeline stages."""

from __future__ import annotations

from typing import Any

from ddprof.dashboard.figures.charts import StageChart
from ddprof.dashboard.figures.plotly.base import PALE, Drawn, Key, label, lines, var

LINE_PX, MOST_PX = 34, 900
LEAST_MARK_PX = 8  # a smaller number cannot be read


def schedule(chart: StageChart) -> Drawn:
    """One bar per block, at its place in time."""
    made = lines(chart.lines, chart.axis, LINE_PX, most_px=MOST_PX)
    made |= {"barmode": "overlay", "uniformtext": {"minsize": LEAST_MARK_PX, "mode": "hide"}}
    made["xaxis"]["range"] = [0, max((block.start + block.length for block in chart.blocks), default=1)]
    data = [_kind(chart, number) for number in range(len(chart.kinds))]
    legend = tuple(Key(color, "", words, is_pale) for words, color, is_pale in chart.kinds)
    return Drawn(data, made, legend, most_width_px=None)


def _kind(chart: StageChart, number: int) -> dict[str, Any]:
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

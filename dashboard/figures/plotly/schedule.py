"""What runs when, line by line: forward and backward passes of pipeline stages."""

from __future__ import annotations

import plotly.graph_objects as go

from ddprof.dashboard.figures.charts import StageChart
from ddprof.dashboard.figures.plotly.base import Palette, figure, label, name_lines

LINE_PX, LEAST_PX, MOST_PX = 34, 190, 900
PALE = 0.45  # opacity
LEAST_MARK_PX = 8  # a smaller number cannot be read


def schedule(chart: StageChart, colors: Palette) -> go.Figure:
    """One bar per block, at its place in time."""
    height = min(MOST_PX, max(LEAST_PX, LINE_PX * len(chart.lines) + 120))
    drawn = figure(colors, chart.axis, "", height)
    name_lines(drawn, chart.lines)
    for number, (words, color, is_pale) in enumerate(chart.kinds):
        blocks = [block for block in chart.blocks if block.kind == number]
        drawn.add_bar(
            base=[block.start for block in blocks],
            x=[block.length for block in blocks],
            y=[block.line for block in blocks],
            width=0.8,
            orientation="h",
            name=label(words),
            text=[block.mark for block in blocks],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": colors.text if is_pale else _on_bar(colors)},
            marker={"color": _faded(colors.value(color)) if is_pale else colors.value(color)},
            hovertext=[label(block.words) for block in blocks],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    drawn.update_layout(barmode="overlay", uniformtext={"minsize": LEAST_MARK_PX, "mode": "hide"})
    drawn.update_yaxes(showgrid=False, zeroline=False)
    drawn.update_xaxes(range=[0, max((block.start + block.length for block in chart.blocks), default=1)])
    return drawn


def _faded(color: str) -> str:
    """A colour that the ground shines through, in the legend too."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{PALE})"


def _on_bar(colors: Palette) -> str:
    return "#000000" if colors.dark else "#ffffff"

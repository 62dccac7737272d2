"""A chart as a figure of plotly.js."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ddprof.dashboard.figures import charts
from ddprof.dashboard.figures.plotly import bars, flame, points
from ddprof.dashboard.figures.plotly.base import Drawn

_DRAWN_BY: Mapping[type, Callable[[Any], Drawn]] = {
    charts.Stacked: bars.stacked,
    charts.Ranges: bars.ranges,
    charts.Waterfall: bars.waterfall,
    charts.Heat: points.heatmap,
    charts.Dots: points.step_dots,
    charts.Bandwidths: points.size_against_bandwidth,
    charts.Dumbbells: points.dumbbells,
    charts.Forecasts: points.forecasts,
    charts.Curves: points.curves,
    charts.Flame: flame.flame,
    charts.StageChart: bars.schedule,
}


def draw(chart: charts.Chart) -> Drawn:
    """The figure with its legend; its colours are names of the theme."""
    return _DRAWN_BY[type(chart)](chart)

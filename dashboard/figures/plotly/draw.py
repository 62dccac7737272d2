"""A chart as a plotly figure in the colours of a theme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go

from ddprof.dashboard.figures import charts
from ddprof.dashboard.figures.plotly import bars, grids, points, schedule
from ddprof.dashboard.figures.plotly.base import Palette

_DRAWN_BY: Mapping[type, Callable[[Any, Palette], go.Figure]] = {
    charts.Stacked: bars.stacked,
    charts.Ranges: bars.ranges,
    charts.Columns: bars.columns,
    charts.Heat: grids.heatmap,
    charts.Dots: points.step_dots,
    charts.Bandwidths: points.size_against_bandwidth,
    charts.Intervals: points.intervals,
    charts.Dumbbells: points.dumbbells,
    charts.Forecasts: points.forecasts,
    charts.Curves: points.curves,
    charts.StageChart: schedule.schedule,
}


def draw(chart: charts.Chart, colors: Palette) -> go.Figure:
    """The figure; its layout states its height."""
    return _DRAWN_BY[type(chart)](chart, colors)

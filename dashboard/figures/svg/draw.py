"""A chart as inline SVG with its legend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ddprof.dashboard.figures import charts
from ddprof.dashboard.figures.svg import bars, grids, points
from ddprof.report.html.markup import Markup

_DRAWN_BY: Mapping[type, Callable[[Any, str], Markup]] = {
    charts.Stacked: bars.stacked,
    charts.Ranges: bars.ranges,
    charts.Columns: bars.columns,
    charts.Heat: grids.heatmap,
    charts.Dots: points.dots,
    charts.Bandwidths: points.bandwidths,
    charts.Intervals: points.intervals,
    charts.Dumbbells: points.dumbbells,
    charts.Forecasts: points.forecasts,
    charts.Curves: points.curves,
}


def draw(chart: charts.Chart, words: str) -> Markup:
    """The picture; `words` are what a screen reader says of it. Nothing for a schedule: its numbers are below it."""
    return _DRAWN_BY[type(chart)](chart, words) if type(chart) in _DRAWN_BY else Markup("")

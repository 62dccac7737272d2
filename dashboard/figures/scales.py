"""Axes and positions of marks: round ticks, short numbers, dots side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ddprof.dashboard.figures.charts import Dots, Forecasts, Heat
from ddprof.tables import Array

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

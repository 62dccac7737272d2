"""A line per label from top to bottom: names at the left, an axis with its unit below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddprof.dashboard.figures.svg import frame
from ddprof.report.html.markup import Markup

TOP, HEIGHT = 8.0, 24.0  # above the first line; of a line


@dataclass(frozen=True)
class Lines:
    """Places of lines that share an axis from `low` to `high`; `x` gives the place of a value."""

    labels: Sequence[str]
    low: float
    high: float
    left: float
    x: frame.Scale

    @property
    def bottom(self) -> float:
        """Below the last line."""
        return TOP + HEIGHT * len(self.labels)

    def middle(self, line: float) -> float:
        """Height of a line's middle."""
        return TOP + HEIGHT * (line + 0.5)

    def picture(self, words: str, marks: Sequence[Markup], unit: str) -> Markup:
        """The marks with names, grid and axis; `words` say what it is to a screen reader."""
        axis = frame.axis_below(self.low, self.high, self.x, self.bottom, unit, TOP)
        names = frame.names_at_left(self.labels, self.left, self.middle)
        return frame.svg(self.bottom + frame.AXIS_HEIGHT, words, *axis, *marks, *names)


def rows(labels: Sequence[str], low: float, high: float) -> Lines:
    """Lines for the labels, with an axis from `low` to `high`."""
    left = frame.label_width(labels)
    return Lines(labels, low, high, left, frame.scale(low, high, left, frame.END))

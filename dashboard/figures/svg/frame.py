"""The ground of every SVG chart: size, text that fits, axes with their unit, legend.

Colours are CSS variables of the page, so that light, dark and print need one picture. Lengths are SVG user units, about
a pixel on a page of normal width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ddprof.dashboard.figures.scales import linear_ticks
from ddprof.report.html.markup import Markup, tag

WIDTH = 860.0
END = WIDTH - 18.0  # of every plot: half of the last tick's label stands right of it
AXIS_HEIGHT = 38.0  # tick labels and title below the plot
CHAR = 7.6  # width of a character in wide words of the 12 px font (DejaVu Sans: 5.8 to 7.5)
MOST_LABEL = 250.0
LEAST_LABEL = 46.0

Scale = Callable[[float], float]


def svg(height: float, words: str, *children: Markup | None) -> Markup:
    """A picture of the full width; `words` say what it is to a screen reader."""
    box = f"0 0 {WIDTH:g} {height:g}"
    return tag("svg", *children, viewBox=box, role="img", aria_label=words, class_="picture")


def text(words: str, x: float, y: float, anchor: str = "start", **more: str) -> Markup:
    """One line of text."""
    return tag("text", words, x=round(x, 1), y=round(y, 1), text_anchor=anchor, **more)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of a class of the stylesheet."""
    places = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return tag("line", **{name: round(value, 1) for name, value in places.items()}, class_=kind)


def across(left: float, y: float, kind: str) -> Markup:
    """A line from the left to the right end of a plot."""
    return line(left, y, END, y, kind)


def fitted(words: str, room: float) -> str:
    """The words, cut with an ellipsis where they need more room."""
    most = max(2, int(room / CHAR))
    return words if len(words) <= most else words[: most - 1] + "…"


def label_width(labels: Iterable[str]) -> float:
    """Room for the labels at the left, within bounds."""
    longest = max((len(words) for words in labels), default=0)
    return min(MOST_LABEL, max(LEAST_LABEL, longest * CHAR + 14))


def names_at_left(labels: Sequence[str], left: float, center: Scale) -> list[Markup]:
    """A label for each line; `center` gives the height of a line's middle. The whole name is its title."""
    return [
        tag(
            "text",
            fitted(words, left - 10),
            tag("title", words) if len(words) * CHAR > left - 10 else None,
            x=left - 8,
            y=round(center(i) + 4, 1),
            text_anchor="end",
        )
        for i, words in enumerate(labels)
    ]


def scale(low: float, high: float, first: float, last: float) -> Scale:
    """From values in [low, high] to places in [first, last]."""
    span = (high - low) or 1.0
    return lambda value: first + (value - low) / span * (last - first)


def axis_below(low: float, high: float, x: Scale, bottom: float, title: str, top: float = 0.0) -> list[Markup]:
    """Ticks, grid lines and a title with the unit under a plot."""
    parts = ticks_below([(x(t), f"{t:.6g}") for t in linear_ticks(low, high)], bottom, top)
    middle = (x(low) + x(high)) / 2
    return [*parts, line(x(low), bottom, x(high), bottom, "axis"), text(title, middle, bottom + 32, "middle")]


def ticks_below(ticks: Sequence[tuple[float, str]], bottom: float, top: float) -> list[Markup]:
    """A grid line and a label under it for each tick: place and words."""
    return [
        *(line(x, top, x, bottom, "grid") for x, _ in ticks),
        *(text(words, x, bottom + 15, "middle") for x, words in ticks),
    ]


def axis_at_left(low: float, high: float, y: Scale, left: float, title: str) -> list[Markup]:
    """Ticks, grid lines and a title with the unit left of a plot that is drawn to the right edge."""
    ticks = [(y(t), f"{t:.6g}") for t in linear_ticks(low, high, 4)]
    return ticks_at_left(ticks, left, title, (y(low) + y(high)) / 2)


def ticks_at_left(ticks: Sequence[tuple[float, str]], left: float, title: str, middle: float) -> list[Markup]:
    """A grid line and a label beside it for each tick, place and words, and a turned title around `middle`."""
    return [
        *(across(left, y, "grid") for y, _ in ticks),
        *(text(words, left - 6, y + 4, "end") for y, words in ticks),
        text(title, 12, middle, "middle", transform=f"rotate(-90 12 {middle:.1f})"),
    ]


def names_below(labels: Sequence[str], x: Sequence[float], bottom: float, title: str = "") -> list[Markup]:
    """Labels under upright bars: as many as do not touch, and a title."""
    if not labels:
        return []
    room = (x[-1] - x[0]) / max(1, len(x) - 1) if len(x) > 1 else WIDTH
    longest = max(len(words) for words in labels) * CHAR + 8
    every = max(1, int(-(-longest // max(room, 1.0))))
    parts = [text(labels[i], x[i], bottom + 15, "middle") for i in range(0, len(labels), every)]
    return [*parts, text(title, (x[0] + x[-1]) / 2, bottom + 32, "middle")] if title else parts


def legend(items: Sequence[tuple[str, str, str]]) -> Markup:
    """Below a picture: (colour of the theme, letter or symbol, words) of each kind of mark."""
    return tag(
        "ul",
        *(
            tag("li", tag("span", mark, class_="swatch", style=f"background:var(--{color})"), words)
            for color, mark, words in items
        ),
        class_="legend",
    )


def box(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as a piece of a path."""
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"

"""Defaults of all figures: one meaning per colour, solid fills, transparent background, the legend outside the plot.

Colours are names of the theme (ddprof/report/html/style.py) as in CSS, "var(--accent)": `themed` puts a theme's colours
in their place for the dashboard, assets/onefile/charts.js those that the page of the HTML file has at the moment.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddprof.report.phrases import clean

MAX_LABEL_CHARS = 60
LINE_CHARS = 28  # of a name at the left of a bar: two lines of it leave room for the bar on a narrow window
PALE = 0.45  # opacity of what is drawn pale
MOST_WIDTH_PX = 920  # of a picture: longer bars are no easier to compare
LINE_PX, TWO_LINES_PX = 24, 36  # height of a bar with its gap, and where names take two lines
BELOW_PX = 52  # height of an axis with its title
LEAST_PLOT_PX = 36  # of a figure's height, whatever its names need: plotly's 64 would not do for one line
_FONT = {"family": "system-ui, sans-serif", "size": 12}
_NAME = re.compile(r"var\(--([a-z-]+)\)")


@dataclass(frozen=True)
class Key:
    """A line of the legend: a colour of the theme, the letter or symbol on it, and words."""

    color: str
    mark: str
    words: str
    is_pale: bool = False

    @property
    def background(self) -> str:
        """Background of the swatch, as CSS."""
        solid = var(self.color)
        return f"color-mix(in srgb,{solid} {PALE:.0%},{var('ground')})" if self.is_pale else solid


@dataclass(frozen=True)
class Drawn:
    """A figure of plotly.js with its surroundings. `least_width_px`: a narrower page scrolls it."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    legend: tuple[Key, ...] = ()
    most_width_px: int | None = MOST_WIDTH_PX
    least_width_px: int | None = None

    @property
    def height_px(self) -> int:
        """Height of the figure without its legend."""
        return int(self.layout["height"])

    @property
    def figure(self) -> dict[str, Any]:
        """Input of plotly.js, with names for colours."""
        return {"data": self.data, "layout": self.layout}


def var(name: str) -> str:
    """A colour of the theme."""
    return f"var(--{name})"


def themed(figure: Any, theme: Mapping[str, str]) -> Any:
    """A figure, or a part of one, with the theme's colours in place of their names."""
    if isinstance(figure, Mapping):
        return {key: themed(value, theme) for key, value in figure.items()}
    if isinstance(figure, list):
        has_text = any(not isinstance(value, int | float | None) for value in figure)
        return [themed(value, theme) for value in figure] if has_text else figure
    if isinstance(figure, str) and (match := _NAME.fullmatch(figure)):
        return theme[match[1]]
    return figure


def scatter(mode: str, x: Sequence[Any], y: Sequence[Any], **looks: Any) -> dict[str, Any]:
    """Points, lines or text ("markers", "lines", "text") at places."""
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), **looks}


def whiskers(color: str, above: Sequence[float | None], below: Sequence[float | None]) -> dict[str, Any]:
    """Lines along the axis of x from each value to the ends of its interval."""
    ends = {"symmetric": False, "array": above, "arrayminus": below}
    return {"type": "data", **ends, "color": var(color), "thickness": 1.6, "width": 4}


def layout(height_px: int, x_title: str = "", y_title: str = "") -> dict[str, Any]:
    """A layout in the house style; axis titles carry the units."""
    grid = {"color": var("line"), "gridcolor": var("line"), "zerolinecolor": var("line"), "linecolor": var("line")}
    axis = {
        **grid,
        "automargin": True,
        "ticks": "",
        "tickfont": {"color": var("text")},
        # 50,000 and not 50k, which reads as a unit's prefix before the unit in the title
        "exponentformat": "none",
        "separatethousands": True,
        "gridwidth": 0.6,
    }
    return {
        "height": height_px,
        "minreducedheight": LEAST_PLOT_PX,
        "margin": {"l": 8, "r": 18, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {**_FONT, "color": var("text")},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": var("ground"), "font": {"color": var("text")}, "bordercolor": var("line")},
        "xaxis": {**axis, "title": _title(x_title)},
        "yaxis": {**axis, "title": _title(y_title)},
    }


def _title(words: str) -> dict[str, Any]:
    return {"text": words, "standoff": 6, "font": {"size": 12, "color": var("text")}}


def lines(
    names: Sequence[str], x_title: str, line_px: int = LINE_PX, line_chars: int = LINE_CHARS, most_px: int | None = None
) -> dict[str, Any]:
    """A layout with a row for each name, 0 at the top, in at most two lines of text; `most_px` is its greatest height.

    Lines have numbers for places: plotly draws what has one name, or one name once it is cut, on one line, and would
    stack two bars there.
    """
    words = []
    for name in names:
        parts = textwrap.wrap(clean(name), line_chars, break_long_words=False, break_on_hyphens=False) or [""]
        two = parts[:1] + [" ".join(parts[1:])] * (len(parts) > 1)
        words.append("<br>".join(plain(_cut(part, line_chars)) for part in two))
    each_px = max(line_px, TWO_LINES_PX) if any("<br>" in name for name in words) else line_px
    tall = each_px * len(names) + BELOW_PX
    made = layout(tall if most_px is None else min(tall, most_px), x_title)
    made["yaxis"] |= {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": words,
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
        "ticklabelstandoff": 4,
        "fixedrange": True,
    }
    return made


def label(text: str, most: int = MAX_LABEL_CHARS) -> str:
    """A name from a trace as plotly text: plotly reads a few HTML tags, so `<` must not reach it."""
    return plain(_cut(clean(text), most))


def dashed(axis: str, at: float) -> dict[str, Any]:
    """A dashed line across the plot where an axis, "x" or "y", has a value. Not for logarithmic axes."""
    other = "y" if axis == "x" else "x"
    line = {"color": var("quiet"), "dash": "dash", "width": 1.5}
    ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1}
    return {
        "type": "line",
        "layer": "below",
        f"{axis}ref": axis,
        f"{other}ref": f"{other} domain",
        **ends,
        "line": line,
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def plain(text: str) -> str:
    """Text escaped for plotly, which interprets some HTML tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

"""Colours and defaults of all figures: one meaning per colour, transparent ground, no plotly decoration."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from ddprof.causes import CAUSES
from ddprof.report.phrases import clean

MAX_LABEL_CHARS = 60
LEAST_PLOT_PX = 36  # of a figure's height, whatever legend and names need: plotly's 64 lets them lie on the bars
LINE_CHARS = 36  # of a name at the left of a bar: two lines of it leave room for the bar on a narrow window


@dataclass(frozen=True)
class Palette:
    """Colours of one theme."""

    text: str
    quiet: str
    grid: str
    accent: str
    critical: str
    ground: str
    dark: bool

    def cause(self, cause: str) -> str:
        """Colour of a ledger cause."""
        look = CAUSES[cause]
        return look.dark if self.dark else look.light

    def value(self, name: str) -> str:
        """The colour of a theme's name: a ledger cause with dashes, or one of the palette's own."""
        own = {"line": self.grid, "accent": self.accent, "critical": self.critical, "quiet": self.quiet}
        return own.get(name) or self.cause(name.replace("-", "_"))

    @property
    def heat(self) -> list[list[float | str]]:
        """Scale of heatmaps, the same on all pages: the ground at zero, the colour of what is critical where more is
        lost, and where less is one that does not draw the eye from it."""
        less, pale = ("#59636e", "#22272e") if self.dark else ("#9aa7b4", "#f6f8fa")
        return [[0.0, less], [0.5, pale], [1.0, "#c2362b"]]


LIGHT = Palette("#1f2328", "#57606a", "#d0d7de", "#0a58ca", "#b42318", "#ffffff", False)
DARK = Palette("#e6edf3", "#9da7b3", "#3d444d", "#6cb0ff", "#ff8f85", "#0d1117", True)
# Textures, where parts of a bar touch: colour is never alone.
_SHAPES = {"hatch": "/", "dots": ".", "lines": "|", "cross": "+", "": ""}
PATTERNS = {**{row.id: _SHAPES[row.texture] for row in CAUSES.values()}, "comm_hidden": "x"}


def palette(dark: bool) -> Palette:
    """The palette of a theme."""
    return DARK if dark else LIGHT


def figure(colors: Palette, x_title: str, y_title: str, height: int = 300) -> go.Figure:
    """An empty figure in the house style; axis titles carry the units."""
    axis = {
        "gridcolor": colors.grid,
        "zerolinecolor": colors.grid,
        "linecolor": colors.grid,
        "automargin": True,
        "ticks": "",
    }
    small = {"size": 13}
    # In one piece and without a template: update_layout and the default template cost 0.1 s a figure.
    layout = {
        "template": "none",
        "height": height,
        "minreducedheight": LEAST_PLOT_PX,
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": colors.text, "family": "system-ui, sans-serif", "size": 13},
        # Plotly lists the parts of stacked bars from the last to the first otherwise.
        "legend": {
            **{"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
            "maxheight": 0.8,  # of the figure: a narrow window lists one part a line, and none may need scrolling
        },
        "hoverlabel": {"bgcolor": colors.ground, "font": {"color": colors.text}, "bordercolor": colors.grid},
        "xaxis": {**axis, "title": {"text": x_title, "font": small}},
        "yaxis": {**axis, "title": {"text": y_title, "font": small}},
    }
    return go.Figure(layout=layout)


def label(text: str) -> str:
    """A name from a trace as plotly text: plotly reads a few HTML tags, so `<` must not reach it."""
    return _plain(_cut(clean(text), MAX_LABEL_CHARS))


def name_lines(drawn: go.Figure, names: Sequence[str], line_chars: int = LINE_CHARS) -> list[str]:
    """Names the lines of a picture, 0 at the top, in two lines of text at most; returns what to call them on hover.

    Lines have numbers for places: plotly draws what has one name, or one name once it is cut, on one line, and would
    stack two bars there.
    """
    words = ["<br>".join(_plain(part) for part in _two_lines(clean(name), line_chars)) for name in names]
    places = list(range(len(names)))
    drawn.update_yaxes(tickmode="array", tickvals=places, ticktext=words, range=[len(names) - 0.5, -0.5])
    return [label(name) for name in names]


def _two_lines(name: str, most: int) -> list[str]:
    parts = textwrap.wrap(name, most, break_long_words=False, break_on_hyphens=False) or [""]
    return [_cut(part, most) for part in parts[:1] + [" ".join(parts[1:])] * (len(parts) > 1)]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

"""Charts inside the file: figures as data, and plotly.js, packed, which assets/onefile/charts.js draws them with."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache

from ddprof.dashboard.assets import plotly_script
from ddprof.dashboard.figures.charts import Chart
from ddprof.dashboard.figures.plotly.base import Drawn, Key
from ddprof.dashboard.figures.plotly.draw import draw
from ddprof.report.html.markup import Markup, join, tag


def chart_block(chart: Chart, name: str, words: str) -> Markup:
    """A place for the picture, its data (`name`) and its legend; `words` are what a screen reader says of it."""
    drawn = draw(chart)
    plot = tag("div", class_="plot", role="img", aria_label=words, style=_size(drawn))
    # A wide one is scrolled, which the keyboard must reach.
    frame = tag("div", plot, class_="plot-frame", tabindex=None if drawn.least_width_px is None else "0")
    text = json.dumps(drawn.figure, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    data = Markup(f'<script type="application/json" id="{name}">{text}</script>')
    return tag("div", frame, data, _legend(drawn.legend), class_="chart")


@cache
def library() -> Markup:
    """plotly.js, once for all pictures of the file."""
    return packed("plotly", plotly_script().encode())


def _size(drawn: Drawn) -> str:
    sizes = {"height": drawn.height_px, "max-width": drawn.most_width_px, "min-width": drawn.least_width_px}
    return ";".join(f"{name}:{px}px" for name, px in sizes.items() if px is not None)


def _legend(keys: Sequence[Key]) -> Markup | None:
    if not keys:
        return None
    items = (
        tag("li", tag("span", k.mark, class_=f"swatch {k.color}", style=f"background:{k.background}"), k.words)
        for k in keys
    )
    return tag("ul", *items, class_="legend")


def packed(name: str, data: bytes) -> Markup:
    """Compressed data as a script element that no browser runs, with the id `name`; assets/onefile/unpack.js unpacks
    it."""
    return join(Markup(f'<script type="application/gzip;base64" id="{name}">{_text(data)}</script>'))


def _text(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()

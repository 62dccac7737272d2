"""An exhibit as HTML: question, sentence, picture, and its numbers behind a fold."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache

from ddprof.dashboard.assets import plotly_script
from ddprof.dashboard.exhibits.parts.exhibit import NAME, Exhibit, Listing, Sheet, cell, headings
from ddprof.dashboard.figures.charts import Chart
from ddprof.dashboard.figures.plotly.base import Key
from ddprof.dashboard.figures.plotly.draw import draw
from ddprof.report.html.markup import Markup, join, tag

MAX_ROWS = 300
MAX_CELLS = 4_000  # of one table: a cell takes about 30 bytes, and the file stays small


def exhibit_section(exhibit: Exhibit) -> Markup:
    """The section of one exhibit; its table is open where there is no picture."""
    chart, label = None, f"{exhibit.question} {exhibit.reading}"
    if exhibit.chart is not None:
        chart = _chart_block(exhibit.chart, f"figure-{exhibit.id}", label)
    head = (tag("h2", exhibit.question), tag("p", exhibit.reading, class_="reading"))
    body = (*head, chart, _numbers(exhibit), *map(listing_block, exhibit.listings))
    return tag("section", *body, class_="exhibit", id=f"exhibit-{exhibit.id}")


def listing_block(listing: Listing) -> Markup:
    """Text to copy; assets/shared/copy.js copies it."""
    button = tag("button", "Copy", type="button", class_="copy no-print", aria_label=f"Copy: {listing.words}")
    lines = Markup("\n".join(join(line) for line in listing.text.split("\n")))
    head = tag("div", tag("span", listing.words), button, class_="listing-head")
    return tag("div", head, tag("pre", lines, tabindex="0"), class_="listing")


def _numbers(exhibit: Exhibit) -> Markup | None:
    if not exhibit.sheet.rows:
        return None
    body = (tag("summary", "Numbers"), *sheet_table(exhibit.sheet, exhibit.question))
    is_open = exhibit.chart is None or exhibit.sheet.is_tool
    return tag("details", *body, class_="numbers", open="open" if is_open else None)


def sheet_table(sheet: Sheet, title: str) -> list[Markup]:
    """The numbers as a table, and the number of rows left out."""
    limit = max(1, min(MAX_ROWS, MAX_CELLS // max(1, len(sheet.columns))))
    heads = [(words, kind or None) for words, kind in headings(sheet)]
    head = tag("tr", *(tag("th", words, scope="col", class_=kind) for words, kind in heads))
    body = [
        tag("tr", *map(_cell, row, sheet.columns, (kind for _, kind in heads)), data_command=sheet.command(at) or None)
        for at, row in enumerate(sheet.rows[:limit])
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_="tool" if sheet.is_tool else None)
    place = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"Numbers: {title}")
    rest = sheet.rest(limit)
    return [place, tag("p", f"{rest}: ddprof serve shows them.", class_="quiet")] if rest else [place]


def _cell(value: object, column: str, kind: str | None) -> Markup:
    words, own_kind = cell(value, column)
    return tag("td", words, class_=own_kind or kind, title=str(value) if own_kind == NAME and words != value else None)


def _chart_block(chart: Chart, name: str, words: str) -> Markup:
    """A place for the chart, its data (`name`) and its legend; `words` are for screen readers."""
    drawn = draw(chart)
    sizes = {"height": drawn.height_px, "max-width": drawn.most_width_px, "min-width": drawn.least_width_px}
    style = ";".join(f"{side}:{px}px" for side, px in sizes.items() if px is not None)
    plot = tag("div", class_="plot", role="img", aria_label=words, style=style)
    # A wide one is scrolled, which the keyboard must reach.
    frame = tag("div", plot, class_="plot-frame", tabindex=None if drawn.least_width_px is None else "0")
    text = json.dumps(drawn.figure, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    data = Markup(f'<script type="application/json" id="{name}">{text}</script>')
    return tag("div", frame, data, _legend(drawn.legend), class_="chart")


@cache
def library() -> Markup:
    """plotly.js, once for all charts of the file."""
    return packed("plotly", plotly_script().encode())


def _legend(keys: Sequence[Key]) -> Markup | None:
    if not keys:
        return None
    items = (
        tag("li", tag("span", k.mark, class_=f"swatch {k.color}", style=f"background:{k.background}"), k.words)
        for k in keys
    )
    return tag("ul", *items, class_="legend")


def packed(name: str, data: bytes) -> Markup:
    """Compressed data as a script element with the id `name` that no browser runs, for assets/onefile/unpack.js."""
    text = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return Markup(f'<script type="application/gzip;base64" id="{name}">{text}</script>')

"""The step as a stacked bar in inline SVG, with its legend."""

from __future__ import annotations

from collections.abc import Mapping

from ddprof.causes import CAUSES
from ddprof.report.bar import legend_words, shares, title_words
from ddprof.report.html.markup import Markup, tag
from ddprof.report.html.style import colour

NAMED_MARK = " ◀"  # behind a rank that a finding names
_BAR_WIDTH = 1000.0
_LEAST_LETTER_WIDTH = 14.0


def step_bar(row: Mapping[str, float], label: str, height: float = 34.0) -> Markup:
    """A ledger row as one stacked bar; each part has its letter and a tooltip."""
    parts, at = [], 0.0
    for cause, share in shares(row).items():
        width = share * _BAR_WIDTH
        title = tag("title", title_words(row, cause))
        parts.append(tag("rect", title, x=at, y=0.0, width=width, height=height, style=f"fill:{colour(cause)}"))
        if width >= _LEAST_LETTER_WIDTH:
            letter = CAUSES[cause].letter
            parts.append(tag("text", letter, x=at + width / 2, y=height / 2 + 4, text_anchor="middle", class_="on-bar"))
        at += width
    box = f"0 0 {_BAR_WIDTH:g} {height:g}"
    return tag("svg", *parts, viewBox=box, preserveAspectRatio="none", class_="step", role="img", aria_label=label)


def legend(row: Mapping[str, float]) -> Markup:
    """The bar's causes with letter, words, time and share."""
    items = []
    for cause in shares(row):
        swatch = tag("span", CAUSES[cause].letter, class_="swatch", style=f"background:{colour(cause)}")
        items.append(tag("li", swatch, legend_words(row, cause)))
    return tag("ul", *items, class_="legend")

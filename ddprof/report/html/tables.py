"""Tables of the HTML comparison."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.report.html.markup import Markup, tag


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table of text with one header row, scrolling sideways where it is wide."""
    header = tag("tr", *(tag("th", name, scope="col") for name in head))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    whole = tag("table", tag("thead", header), tag("tbody", *body))
    return tag(
        "div", whole, class_="scroll", tabindex="0", role="region", aria_label="table: " + ", ".join(filter(None, head))
    )

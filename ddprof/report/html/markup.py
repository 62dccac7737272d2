"""HTML and SVG that is safe by construction: every string is escaped unless it is already `Markup`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ddprof.report.phrases import clean

_VOID = frozenset({"meta", "br", "hr", "link", "input", "line", "rect", "circle", "path", "col"})


class Markup(str):
    """Text that is already HTML; the only kind that is not escaped."""

    __slots__ = ()


Child = str | None


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """One element. `class_` loses its underscore, other names turn `_` into `-`; an attribute of None is left out."""
    texts = {key: f"{value:.6g}" if isinstance(value, int | float) else value for key, value in attributes.items()}
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(clean(value), quote=True)}"'
        for key, value in texts.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children side by side, each escaped unless it is Markup; None is left out."""
    return Markup("".join(child if isinstance(child, Markup) else escape(clean(child)) for child in children if child))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table of text with one header row, scrolling sideways where it is wide."""
    header = tag("tr", *(tag("th", name, scope="col") for name in head))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    whole, named = tag("table", tag("thead", header), tag("tbody", *body)), ", ".join(filter(None, head))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=f"table: {named}")

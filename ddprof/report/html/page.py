"""The frame of every HTML file of ddprof: self-contained, no requests, with light, dark and print styles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ddprof._version import __version__
from ddprof.report.html.markup import Markup, tag
from ddprof.report.html.style import SCRIPT, STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def page(
    title: str,
    subtitle: str,
    sections: Sequence[Markup],
    data: Markup,
    style: str = "",
    script: str = "",
    navigation: Markup | None = None,
) -> str:
    """A complete document. `data` comes from `embedded`; `style` and `script` are added to the common ones.

    A content security policy forbids every load.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(STYLE + style)),
    )
    theme, save = (tag("button", t, id=i, type="button") for t, i in (("Light / dark", "theme"), ("Save JSON", "save")))
    buttons = tag("span", theme, " ", save, class_="no-print")
    footer = tag("footer", f"ddprof {__version__}. This file makes no request and holds all its data.")
    header = tag("header", tag("span", subtitle), buttons)
    body = tag("body", header, navigation, tag("main", *sections), footer, data, tag("script", Markup(SCRIPT + script)))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def embedded(document: Mapping[str, Any]) -> Markup:
    """The JSON document that "Save JSON" saves; `<` is escaped, so that no name can end the script element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="report">{text}</script>')

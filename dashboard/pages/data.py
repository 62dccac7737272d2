"""Data: what was read, and where further traces are added."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.data import exhibits
from ddprof.dashboard.pages.cards import exhibit_card
from ddprof.dashboard.runs.view import View
from ddprof.units import format_bytes

# A page elsewhere can send a form to a loopback address, but no header of its own without being allowed to.
HEADER = "X-Ddprof-Upload"
FIELD = "files"


def content(view: View) -> list[Component]:
    """The page."""
    cards = [exhibit_card(exhibit, "/data", view) for exhibit in exhibits(view)]
    return [html.H1("Data"), *_upload(view.upload_bytes), *cards]


def _upload(limit_bytes: int) -> list[Component]:
    """The container that assets/dashboard/upload.js fills with the form: Dash's own file input sends base64."""
    if not limit_bytes:
        return []
    words = (
        f"Trace files of one run, an archive of them, or a saved JSON report, {format_bytes(limit_bytes)} at most. "
        "They become a further run above and are kept until the server stops."
    )
    config = {"limit_bytes": limit_bytes, "too_large": too_large_words(limit_bytes), "field": FIELD, "header": HEADER}
    parts = [
        html.H2("Look at other traces"),
        html.P(words, className="reading", id="upload-words"),
        html.Div(id="upload-form"),
        dcc.Store(id="upload-config", data=config),
        html.Div(id="upload-mounted", hidden=True),
    ]
    return [html.Section(parts, className="exhibit no-print", id="upload")]


def too_large_words(limit_bytes: int) -> str:
    """The reason why an upload is refused, and what to do instead."""
    limit = format_bytes(limit_bytes)
    return f"the upload is larger than {limit}: serve the files themselves (ddprof serve PATH), or raise --max-upload"

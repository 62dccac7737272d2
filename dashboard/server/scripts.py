"""The dashboard's own scripts as one file, as each request delays the first chart by some 15 ms, and plotly.js."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from flask import Flask, Response

from ddprof.dashboard.assets import PLOTLY_SHA256, joined, plotly_script

PATH, PLOTLY_PATH = "/data/dashboard.js", "/data/plotly.js"
_KEPT_S = 31_536_000  # a year: the address changes with the content
_KEY_CHARS = 16


def styles() -> str:
    """All stylesheets of the dashboard."""
    return joined(".css", "shared", "dashboard", "timeline")


def address() -> str:
    """Relative address of the scripts."""
    return f"{PATH.lstrip('/')}?{hashlib.sha256(_scripts().encode()).hexdigest()[:_KEY_CHARS]}"


def plotly_address() -> str:
    """Relative address of plotly.js."""
    return f"{PLOTLY_PATH.lstrip('/')}?{PLOTLY_SHA256[:_KEY_CHARS]}"


def add_scripts(server: Flask) -> None:
    """Serve the scripts at PATH, plotly.js at PLOTLY_PATH."""

    def served(script: Callable[[], str]) -> Callable[[], Response]:
        headers = {"Cache-Control": f"private, max-age={_KEPT_S}"}
        return lambda: Response(script(), mimetype="application/javascript", headers=headers)

    server.add_url_rule(PATH, "scripts", served(_scripts))
    server.add_url_rule(PLOTLY_PATH, "plotly", served(plotly_script))


def _scripts() -> str:
    return joined(".js", "shared", "timeline", "dashboard")

"""The dashboard's own scripts as one file: each request costs the first picture some 15 ms."""

from __future__ import annotations

import hashlib

from flask import Flask, Response

from ddprof.dashboard.assets import joined

PATH = "/data/dashboard.js"
_KEPT_S = 31_536_000  # a year: the address changes with the content


def styles() -> str:
    """All stylesheets of the dashboard."""
    return joined(".css", "shared", "dashboard", "timeline")


def address() -> str:
    """Where a page finds the scripts; relative to it."""
    return f"{PATH.lstrip('/')}?{hashlib.sha256(_scripts().encode()).hexdigest()[:16]}"


def add_scripts(server: Flask) -> None:
    """Serve the scripts at PATH."""

    def scripts() -> Response:
        headers = {"Cache-Control": f"private, max-age={_KEPT_S}"}
        return Response(_scripts(), mimetype="application/javascript", headers=headers)

    server.add_url_rule(PATH, "scripts", scripts)


def _scripts() -> str:
    return joined(".js", "shared", "timeline", "dashboard")

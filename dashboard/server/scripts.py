"""The dashboard's own scripts as one file: each request costs the first picture some 15 ms."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from flask import Flask, Response

ASSETS = Path(__file__).parent.parent / "assets"
PATH = "/data/dashboard.js"
_KEPT_S = 31_536_000  # a year: the address changes with the content


def styles() -> str:
    """All stylesheets of the dashboard."""
    return _joined(".css")


def address() -> str:
    """Where a page finds the scripts; relative to it."""
    return f"{PATH.lstrip('/')}?{hashlib.sha256(_joined('.js').encode()).hexdigest()[:16]}"


def add_scripts(server: Flask) -> None:
    """Serve the scripts at PATH."""

    def scripts() -> Response:
        headers = {"Cache-Control": f"private, max-age={_KEPT_S}"}
        return Response(_joined(".js"), mimetype="application/javascript", headers=headers)

    server.add_url_rule(PATH, "scripts", scripts)


@cache
def _joined(suffix: str) -> str:
    """Files of a kind by name: each script adds to what those before it in the alphabet have made."""
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(ASSETS.glob(f"*{suffix}")))

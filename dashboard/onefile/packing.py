"""Data inside the file: compressed, as text that HTML can hold. assets/onefile/unpack.js unpacks it."""

from __future__ import annotations

import base64
import gzip

from ddprof.report.html.markup import Markup, join


def packed(name: str, data: bytes) -> Markup:
    """A script element that no browser runs, with the id `name`."""
    return join(Markup(f'<script type="application/gzip;base64" id="{name}">{_text(data)}</script>'))


def _text(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()

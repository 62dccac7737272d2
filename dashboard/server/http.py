"""The HTTP server: threads, compressed answers, no debug mode, no request log on the terminal."""

from __future__ import annotations

import gzip

from flask import Flask, Response, request
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler
from werkzeug.serving import make_server as make_wsgi_server

from ddprof.dashboard.app import create_app
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import is_loopback
from ddprof.errors import UsageError

LEAST_COMPRESSED_BYTES = 2_000
_TEXT = ("text/", "application/json", "application/javascript")


class _Quiet(WSGIRequestHandler):
    """Requests are not worth a line each; errors still are."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""


def make_server(
    runs: Runs, host: str, port: int, token: str | None = None, max_upload_bytes: int = 0
) -> BaseWSGIServer:
    """A server that is bound but not yet serving. Raises UsageError where the address cannot be bound.

    Uploads of up to `max_upload_bytes` are taken on loopback or with a token, from nobody else.
    """
    app = create_app(runs, token, max_upload_bytes if token or is_loopback(host) else 0)
    compress(app.server)
    try:
        return make_wsgi_server(host, port, app.server, threaded=True, request_handler=_Quiet)
    except (OSError, SystemExit) as error:
        # werkzeug turns a port in use into SystemExit after printing its own lines.
        raise UsageError(
            f"cannot bind {host}:{port}: {getattr(error, 'strerror', None) or 'the port is in use'}"
        ) from error


def compress(server: Flask) -> None:
    """Compress text answers: people look through SSH tunnels, and plotly.js alone is 4.8 MB (1.5 compressed)."""
    known: dict[str, bytes] = {}

    def squeeze(response: Response) -> Response:
        """The response gzipped where the browser takes it and it is text worth packing; else unchanged."""
        wanted = "gzip" in request.headers.get("Accept-Encoding", "")
        if not wanted or response.status_code != 200 or not str(response.mimetype).startswith(_TEXT):
            return response
        response.direct_passthrough = False
        data = response.get_data()
        if len(data) < LEAST_COMPRESSED_BYTES or response.headers.get("Content-Encoding"):
            return response
        fixed = request.path.startswith("/_dash-component-suites/")
        packed = known.get(request.path) if fixed else None
        if packed is None:
            packed = gzip.compress(data, 6 if fixed else 1)
            if fixed:
                known[request.path] = packed
        response.set_data(packed)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
        return response

    server.after_request(squeeze)

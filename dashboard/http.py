"""The HTTP server: limited connections, compressed answers, no debug mode, no request log on the terminal."""

from __future__ import annotations

import gzip
import threading
from functools import lru_cache
from io import BufferedReader
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, request
from werkzeug.serving import BaseWSGIServer, ThreadedWSGIServer, WSGIRequestHandler

from ddprof.dashboard.app import create_app
from ddprof.dashboard.runs.perfetto import PERFETTO_UI
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import PACKAGES_PATH, Access, is_loopback
from ddprof.dashboard.server.scripts import PLOTLY_PATH
from ddprof.errors import UsageError

LEAST_COMPRESSED_BYTES = 2_000  # below it packing gains no packet
KEPT_SCRIPTS = 64  # of Dash and plotly.js, packed: more than they have
MAX_CONNECTIONS = 64  # a browser opens six; each is a thread
FULL_S = 2.0  # how long a further one waits before it is closed
SILENT_S = 30.0  # a connection that sends nothing for so long is closed
DRAINED_BYTES = 256 * 1024  # read at a time of a body that was refused
_TEXT = ("text/", "application/json", "application/javascript")


class _Drain:
    """Unread rest of a refused body, read in pieces, as werkzeug would take 10 MB per connection into memory."""

    def __init__(self, stream: Any) -> None:
        self._stream: BufferedReader = stream

    def read(self, size: int) -> bytes:
        return self._stream.read1(min(size, DRAINED_BYTES))

    def close(self) -> None:
        self._stream.close()


class _Quiet(WSGIRequestHandler):
    """A handler that logs no requests, malformed ones included, but still our own defects."""

    timeout = SILENT_S
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""

    def log_error(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that cannot be parsed, whatever HTTP version it states: the client's mistake."""
        super().send_error(400 if code >= 500 else code, message, explain)

    def version_string(self) -> str:
        """The Server header: no versions."""
        return "ddprof"

    def make_environ(self) -> dict[str, Any]:
        """werkzeug's environment, with the rest of the body read in pieces."""
        environ = super().make_environ()
        self.rfile = _Drain(self.rfile)  # type: ignore[assignment]  # what werkzeug does with it: read and close
        return environ

    def run_wsgi(self) -> None:
        """Run as werkzeug does, unless the address cannot be parsed."""
        try:
            urlsplit(self.path)
        except ValueError:
            self.send_error(400, "the address is malformed")
            return
        super().run_wsgi()


class _Server(ThreadedWSGIServer):
    """A thread for each connection, MAX_CONNECTIONS at a time."""

    def __init__(self, host: str, port: int, app: Flask) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(host, port, app, handler=_Quiet)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, or close it where no thread becomes free."""
        if self._free.acquire(timeout=FULL_S):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread of one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def make_server(
    runs: Runs, port: int, access: Access, max_upload_bytes: int = 0, perfetto_ui: str = PERFETTO_UI
) -> BaseWSGIServer:
    """A bound server that does not serve yet; uploads need loopback or a token. Raises UsageError for a bad address."""
    is_safe = access.token is not None or is_loopback(access.host)
    app = create_app(runs, access, max_upload_bytes if is_safe else 0, perfetto_ui)
    compress(app.server)
    try:
        return _Server(access.host, port, app.server)
    except (OSError, SystemExit) as error:
        # werkzeug turns a port in use into SystemExit after printing its own lines.
        raise UsageError(
            f"cannot bind {access.host}:{port}: {getattr(error, 'strerror', None) or 'the port is in use'}"
        ) from error


@lru_cache(maxsize=KEPT_SCRIPTS)
def _packed(data: bytes) -> bytes:
    return gzip.compress(data, 6)


def compress(server: Flask) -> None:
    """Compress text answers: people use SSH tunnels, and plotly.js alone is 1.5 MB (0.5 compressed)."""

    def squeeze(response: Response) -> Response:
        """The response, gzipped where the browser accepts it and the body is text worth packing."""
        wanted = "gzip" in request.headers.get("Accept-Encoding", "")
        if not wanted or response.status_code != 200 or not str(response.mimetype).startswith(_TEXT):
            return response
        response.direct_passthrough = False
        data = response.get_data()
        if len(data) < LEAST_COMPRESSED_BYTES or response.headers.get("Content-Encoding"):
            return response
        # By content, not by address: Dash answers to any version in the name of a script with the one it has.
        is_fixed = request.path.startswith((PACKAGES_PATH, PLOTLY_PATH))
        response.set_data(_packed(data) if is_fixed else gzip.compress(data, 1))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
        return response

    server.after_request(squeeze)

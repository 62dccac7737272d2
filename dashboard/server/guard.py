"""Access control: requests need the token and this server's name, and must not come from another site's page."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote, urlencode, urlsplit

from flask import Flask, Response, abort, redirect, request

from ddprof.dashboard.runs.view import parse_query
from ddprof.errors import UsageError

COOKIE = "ddprof_"  # with a mark of the token behind: cookies know no ports, and two dashboards share an address
UPLOAD_PATH = "/data/upload"
PACKAGES_PATH = "/_dash-component-suites/"
_MARK_CHARS = 8
_ENTRANCE = (
    '<!DOCTYPE html><html lang="en"><title>ddprof</title><meta http-equiv="refresh" content="0;url={}">'
    '<p><a href="{}">Open the dashboard</a></p></html>'
)


def is_loopback(host: str) -> bool:
    """True where an address to bind to is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    """Access rules. `token` None: anyone who reaches the address; `host`: the bound address.

    `names`: further names under which the server may be asked, such as that of a proxy.
    """

    token: str | None = None
    host: str = "127.0.0.1"
    names: Sequence[str] = ()

    @property
    def cookie(self) -> str:
        """Name of the cookie, one for each token."""
        return COOKIE + hmac.new((self.token or "").encode(), b"name of the cookie", "sha256").hexdigest()[:_MARK_CHARS]

    def is_ours(self, host: str) -> bool:
        """True where a Host header names this server.

        A page elsewhere can point its own name at this address (DNS rebinding), but not a number.
        """
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()
        if is_loopback(name) or name in self.names:
            return True
        if is_loopback(self.host):
            return False
        return name in (self.host, socket.gethostname(), socket.getfqdn()) or _is_number(name)

    def is_token(self, stated: str) -> bool:
        """True for the token; compared in constant time."""
        return self.token is not None and hmac.compare_digest(stated.encode(), self.token.encode())

    def is_known(self) -> bool:
        """True where the request has the token: in the cookie, or as `Authorization: Bearer` from a script."""
        kind, _, stated = request.headers.get("Authorization", "").partition(" ")
        return self.is_token(request.cookies.get(self.cookie, "")) or (kind == "Bearer" and self.is_token(stated))


def protect(server: Flask, access: Access, script_hashes: Sequence[str]) -> None:
    """Install the checks. With a token every request must carry it, once as ?token=, then as a cookie."""
    scripts = " ".join(["'self'", *script_hashes])
    # Everything from this server only. Dash's one inline script is named by its hash; plotly sets styles inline.
    policy = (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'self'"
    )

    def check() -> Response | None:
        """An answer that sets the cookie, or None for a request that may pass. Aborts others with 401 or 403."""
        if not access.is_ours(request.host):
            abort(403, "this server answers to its own names only: see ddprof serve --allow-host")
        try:
            query = parse_query(request.query_string.decode("latin-1"))
        except UsageError as error:
            abort(400, str(error))
        if request.method == "GET" and access.is_token(query.pop("token", "")):
            return _entrance(access, query)
        if _is_foreign():
            abort(403, "a page of another site asks: open the dashboard itself")
        if access.token is not None and not access.is_known():
            abort(401, "open the address with ?token=... that ddprof serve printed")
        return None

    def seal(response: Response) -> Response:
        """Set headers that isolate the page: no script, frame or request from elsewhere, nothing of a run cached."""
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        # Only scripts are kept, which hold nothing of a run.
        if "max-age" not in response.headers.get("Cache-Control", "") and not request.path.startswith(PACKAGES_PATH):
            response.headers["Cache-Control"] = "no-store"
        return response

    server.before_request(check)
    server.after_request(seal)


def _entrance(access: Access, query: dict[str, str]) -> Response:
    """A redirect that sets the cookie and drops the token from the address, so that no history or log holds it."""
    address = "/" + quote(request.path.lstrip("/\\")) + ("?" + urlencode(query) if query else "")
    if request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
        answer = redirect(address)
    else:
        # A redirect goes on from where the link stood, and a strict cookie does not come along; a page of ours does.
        answer = Response(_ENTRANCE.format(escape(address), escape(address)), mimetype="text/html")
    answer.set_cookie(access.cookie, access.token or "", httponly=True, samesite="Strict")
    return answer  # type: ignore[return-value]


def _is_foreign() -> bool:
    """True where a page of another origin sends the request; navigation to our pages is allowed from anywhere."""
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")
    if origin is not None:
        return _netloc(origin) != request.host.lower()
    if site in ("none", "same-origin"):
        return False
    led = request.method == "GET" and request.headers.get("Sec-Fetch-Dest") == "document"
    return not led or request.path.startswith(("/data/", "/_dash"))


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

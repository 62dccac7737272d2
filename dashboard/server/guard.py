"""Who may read: loopback by default, a token elsewhere, no other site through the browser, nothing from outside."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence

from flask import Flask, Request, Response, abort, redirect, request

COOKIE = "ddprof_token"
MAX_REQUEST_BYTES = 1_000_000  # callbacks send a few hundred bytes
UPLOAD_PATH = "/data/upload"  # the one route that takes more


def is_loopback(host: str) -> bool:
    """Whether an address to bind to can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def protect(server: Flask, token: str | None, script_hashes: Sequence[str], upload_bytes: int) -> None:
    """Install the checks. With a token every request must carry it, once as ?token=, then as a cookie."""
    server.request_class = _limited(upload_bytes)
    policy = _policy(script_hashes)

    def check() -> Response | None:
        """None where the request may pass, a redirect that sets the cookie, or an abort with 401 or 403."""
        if token is None:
            # A web page elsewhere can point its own name at 127.0.0.1 (DNS rebinding): only our names are answered.
            if not is_loopback(_host_name(request.host)):
                abort(403, "this server answers to localhost and 127.0.0.1 only")
            return None
        stated = request.args.get("token")
        if stated is not None and hmac.compare_digest(stated.encode(), token.encode()):
            answer = redirect(request.path)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
            return answer  # type: ignore[return-value]
        if not hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), token.encode()):
            abort(401, "open the address with ?token=... that ddprof serve printed")
        return None

    def seal(response: Response) -> Response:
        """Headers that keep the page to itself: no script, frame or request from elsewhere."""
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    server.before_request(check)
    server.after_request(seal)


def _limited(upload_bytes: int) -> type[Request]:
    """Requests whose body is refused by its size before anything of it is parsed (413)."""

    class Limited(Request):
        @property  # type: ignore[misc]  # Flask can be told the limit of one request from 3.1 on only
        def max_content_length(self) -> int:  # type: ignore[override]
            """Bytes of the body of this request at most."""
            return max(upload_bytes, MAX_REQUEST_BYTES) if self.path == UPLOAD_PATH else MAX_REQUEST_BYTES

    return Limited


def _policy(script_hashes: Sequence[str]) -> str:
    """Everything from this server only. Dash's one inline script is named by its hash; plotly sets styles inline."""
    scripts = " ".join(["'self'", *script_hashes])
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]

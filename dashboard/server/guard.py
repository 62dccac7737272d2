"""Access control: requests need the token and this server's name, and must not come from another site's page."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask, Request, Response, abort, redirect, request
from werkzeug.exceptions import HTTPException

from ddprof.dashboard.runs.view import MAX_QUERY_CHARS, parse_query
from ddprof.errors import UsageError
from ddprof.report.phrases import clean

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
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


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


# The boundary to Dash: bodies of limited size, callbacks with the types of ours, refusals in one line of text.

CALLBACK_PATH = "/_dash-update-component"
MAX_REQUEST_BYTES = 1_000_000  # callbacks send a few hundred bytes
MAX_PARTS = 1_000  # files and fields of one upload
MAX_COUNT = 2**53  # the largest whole number of a browser

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
_Line = Annotated[str, msgspec.Meta(max_length=MAX_QUERY_CHARS)]
# What the pages send: property of a component -> its type. Another one is an error of ours, said by a test.
_VALUES: Mapping[str, Any] = {
    "address.pathname": _Line | None,
    "address.search": _Line | None,
    "*.n_intervals": _Count | None,  # of any clock: a slice's page may have its own
    "filter-apply.n_clicks": _Count | None,
    "filter-ranks.n_submit": _Count | None,
    "filter-ranks.value": _Line | None,
    "filter-steps.n_submit": _Count | None,
    "filter-steps.value": _Line | None,
    "version.data": _Count | None,
    "what-if-values.data": Annotated[dict[str, _Line], msgspec.Meta(max_length=100)] | None,
}


class _Property(msgspec.Struct, frozen=True):
    id: str
    property: str
    value: Any = None


class _Output(msgspec.Struct, frozen=True):
    id: str
    property: str


class _Call(msgspec.Struct, frozen=True):
    """Body of a callback, as dash-renderer writes it."""

    output: str
    outputs: _Output | list[_Output]
    inputs: list[_Property]
    changed: list[str] = msgspec.field(default_factory=list, name="changedPropIds")
    state: list[_Property] = msgspec.field(default_factory=list)


def bound(app: Dash, upload_bytes: int) -> None:
    """Install the boundary, which passes only what Dash and our callbacks can take."""
    app.server.request_class = _limited(upload_bytes)
    app.server.register_error_handler(HTTPException, _in_one_line)
    app.server.register_error_handler(DependencyException, lambda _: _line(404, "there is no such script"))

    def check() -> None:
        if request.path == CALLBACK_PATH and request.method == "POST":
            _check_call(app)

    app.server.before_request(check)


def _check_call(app: Dash) -> None:
    """Abort with 400 where a body is not a call of one of our callbacks with values that it takes."""
    try:
        call = msgspec.convert(request.get_json(), _Call)  # the very values that Dash gets: they are parsed once
        callback = app.callback_map.get(call.output)
        if callback is None or "callback" not in callback:
            abort(400, "there is no such callback")
        outputs = [_Output(o.component_id, o.component_property) for o in _listed(callback["output"])]
        if _listed(call.outputs) != outputs or isinstance(call.outputs, list) != isinstance(callback["output"], list):
            abort(400, "the outputs are not those of the callback")
        for sent, wanted in ((call.inputs, callback["inputs"]), (call.state, callback["state"])):
            if [(p.id, p.property) for p in sent] != [(w["id"], w["property"]) for w in wanted]:
                abort(400, "the inputs are not those of the callback")
            for item in sent:
                msgspec.convert(item.value, _VALUES.get(f"*.{item.property}") or _VALUES[f"{item.id}.{item.property}"])
                if isinstance(item.value, str):
                    item.value.encode()  # half a surrogate is not text
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        abort(400, f"not a call of this page: {error}")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _limited(upload_bytes: int) -> type[Request]:
    """Requests that refuse a body by its size before anything of it is parsed (413)."""

    class Limited(Request):
        max_form_parts = MAX_PARTS

        @property  # type: ignore[misc]  # Flask can be told the limit of one request from 3.1 on only
        def max_content_length(self) -> int:  # type: ignore[override]
            """The largest body of this request, bytes."""
            return max(upload_bytes, MAX_REQUEST_BYTES) if self.path == UPLOAD_PATH else MAX_REQUEST_BYTES

    return Limited


def _in_one_line(error: HTTPException) -> Response:
    """Every refusal as plain text; a defect of ours (500) leaves its traceback on the server's terminal."""
    code = error.code or 500
    if 300 <= code < 400:
        return error.get_response()  # type: ignore[return-value]
    return _line(code, error.description or error.name)


def _line(code: int, words: str) -> Response:
    return Response(clean(" ".join(words.split())), code, mimetype="text/plain")

"""The boundary to Dash: bodies of limited size, callbacks with the types of ours, refusals in one line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from dash import Dash
from dash.exceptions import DependencyException
from flask import Request, Response, abort, request
from werkzeug.exceptions import HTTPException

from ddprof.dashboard.runs.view import MAX_QUERY_CHARS
from ddprof.dashboard.server.guard import UPLOAD_PATH
from ddprof.report.phrases import clean

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

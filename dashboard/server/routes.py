"""The server's own routes beside Dash: tiles and answers for the timeline, CSV and JSON downloads. All read-only."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, request

from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.runs.view import View, parse_numbers, run_number
from ddprof.dashboard.timeline.inspect import largest_waits, path_runs, range_statistics, search, slice_details
from ddprof.dashboard.timeline.lane_info import timeline_info
from ddprof.dashboard.timeline.lanes import Timeline
from ddprof.dashboard.timeline.tiles import encode
from ddprof.errors import DdprofError, UsageError
from ddprof.report.json.contract import to_contract

MAX_SEARCH_CHARS = 200


def routes(runs: Runs) -> Blueprint:
    """The blueprint of all data routes, under /data."""
    blueprint = Blueprint("data", __name__, url_prefix="/data")

    def opened() -> OpenRun:
        return runs.open_runs[run_number(request.args, len(runs.open_runs))]

    def add(name: str, answer: Callable[[OpenRun], Any]) -> None:
        """Answer GET /data/<name>; errors of the product are one line with status 400."""

        def handler() -> Response:
            try:
                result = answer(opened())
            except (DdprofError, ValueError) as error:
                return Response(str(error), 400, mimetype="text/plain")
            return result if isinstance(result, Response) else _json(result)

        blueprint.add_url_rule(f"/{name}", name.replace(".", "_"), handler)

    add("lanes", _lanes)
    add("tile", _tile)
    add("slice", lambda s: slice_details(_timeline(s), s.job, _number("row")))
    add("statistics", lambda s: range_statistics(_timeline(s), _lane_numbers(), _number("lo"), _number("hi")))
    add("search", lambda s: search(_timeline(s), request.args.get("text", "")[:MAX_SEARCH_CHARS]))
    add("waits", lambda s: largest_waits(s.timeline, s.job, _number("lo"), _number("hi")))
    add("path", lambda s: path_runs(s.timeline, s.job, s.critical))
    add("report.json", _report)
    add("table.csv", lambda s: _csv(runs, s))
    return blueprint


def _lanes(opened: OpenRun) -> dict[str, Any]:
    return timeline_info(_timeline(opened), parse_numbers(request.args.get("ranks", "")))


def _timeline(opened: OpenRun) -> Timeline:
    """The timeline the request is about: with the operators of the ranks in `expanded`."""
    return opened.timeline_of(parse_numbers(request.args.get("expanded", "")) or frozenset())


def _tile(opened: OpenRun) -> Response:
    body = encode(_timeline(opened), _lane_numbers(), _number("lo"), _number("hi"), _number("bins"))
    return Response(body, mimetype="application/octet-stream")


def _report(opened: OpenRun) -> Response:
    body = json.dumps(to_contract(opened.report), indent=1, allow_nan=False)
    return _download(body, "application/json", "ddprof-report.json")


def _csv(runs: Runs, opened: OpenRun) -> Response:
    page, wanted = page_at("/" + request.args.get("page", "")), request.args.get("id", "")
    view = View(opened, {k: v for k, v in request.args.items() if k not in ("page", "id")}, runs.open_runs)
    for exhibit in page.exhibits(view):
        if exhibit.id == wanted:
            return _download(exhibit.sheet.csv(), "text/csv", f"{wanted}.csv")
    raise UsageError("no such table on this page")


def _download(body: str, mimetype: str, name: str) -> Response:
    return Response(body, mimetype=mimetype, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False, separators=(",", ":")), mimetype="application/json")


def _number(name: str) -> int:
    text = request.args.get(name, "")
    if not text.lstrip("-").isdecimal() or len(text) > 18:
        raise UsageError(f"{name} must be a whole number")
    return int(text)


def _lane_numbers() -> list[int]:
    return sorted(parse_numbers(request.args.get("lanes", "")) or ())

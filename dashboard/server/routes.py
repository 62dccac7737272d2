"""The server's own routes beside Dash: tiles and answers for the timeline, CSV and JSON downloads. All read-only."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from flask import Blueprint, Response, request

from ddprof.dashboard.exhibits.parts.arrangement import arrangement
from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.perfetto import hand_over
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.runs.view import View, parse_query, view_of
from ddprof.dashboard.timeline.difference import difference_details
from ddprof.dashboard.timeline.index import SliceIndex, one_step
from ddprof.dashboard.timeline.inspect import largest_waits, path_runs, slice_details
from ddprof.dashboard.timeline.lanes import Timeline
from ddprof.dashboard.timeline.search import places, search
from ddprof.dashboard.timeline.selection import selection_statistics
from ddprof.dashboard.timeline.tiles import encode, overview, timeline_info
from ddprof.errors import DdprofError, UsageError
from ddprof.report.json.contract import to_contract
from ddprof.report.phrases import clean

MAX_TIME_NS = 10**18  # 30 years from a run's start; sums of two stay in 64 bits
MAX_SEARCH_CHARS = 200
MAX_BINS = 65_536  # more than any screen has; a tile holds fewer (timeline/tiles.py)
_WHERE = re.compile(r"(?P<what>.*) - at `\$\.(?P<name>\w+)`")

Time = Annotated[int, msgspec.Meta(ge=-MAX_TIME_NS, le=MAX_TIME_NS)]
Words = Annotated[str, msgspec.Meta(max_length=MAX_SEARCH_CHARS)]
Something = TypeVar("Something", bound="Asked")


class Asked(msgspec.Struct, frozen=True):
    """Parameters of every route: the run, ranks, and those with operator lanes. Sets of numbers are text: "0-3,7"."""

    run: str = ""
    ranks: str = ""
    expanded: str = ""
    beside: str = ""  # another run: the timeline is of both, aligned by step


class WindowAsked(Asked, frozen=True, kw_only=True):
    """A window of time, in ns since the run's start."""

    lo: Time
    hi: Time

    def __post_init__(self) -> None:
        if self.hi <= self.lo:
            raise ValueError("the window is empty")  # msgspec makes it a ValidationError


class RangeAsked(WindowAsked, frozen=True, kw_only=True):
    """A window of some lanes."""

    lanes: str = ""

    def lanes_of(self, index: SliceIndex) -> list[int]:
        """The lanes in order. Raises UsageError where the timeline has no such lane."""
        chosen = parse_numbers(self.lanes)
        if chosen is not None and chosen.last >= index.lanes:
            raise UsageError("no such lane")
        return [] if chosen is None else list(chosen.below(index.lanes))


class StatisticsAsked(RangeAsked, frozen=True, kw_only=True):
    """The numbers of a window; with a step, the window counts from each rank's own start of that step."""

    step: Annotated[int, msgspec.Meta(ge=0, le=2**40)] | None = None


class TileAsked(RangeAsked, frozen=True, kw_only=True):
    """A tile of a window, in `bins` bins."""

    bins: Annotated[int, msgspec.Meta(ge=1, le=MAX_BINS)]


class SliceAsked(Asked, frozen=True, kw_only=True):
    """One slice, by its row in the index."""

    row: Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class StepAsked(Asked, frozen=True, kw_only=True):
    """One step, by its number on the pages."""

    number: Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class SearchAsked(Asked, frozen=True):
    """Words, a rank or a step to search; hits are returned from the `first` on."""

    text: Words = ""
    first: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0


class PlacesAsked(TileAsked, frozen=True, kw_only=True):
    """A window in which hits are located; `ranks`: further ones, whose lanes are outside it."""

    text: Words = ""


def asked(kind: type[Something], query: Mapping[str, str]) -> Something:
    """The parameters of an address as a type. Raises UsageError, in one line, where one is missing or wrong."""
    try:
        return msgspec.convert(dict(query), kind, strict=False)
    except msgspec.ValidationError as error:
        match = _WHERE.fullmatch(str(error))
        raise UsageError(f"{match['name']}: {match['what']}" if match else str(error)) from error


ANSWERED_AT_ONCE = 4  # requests whose arrays are in memory together; the others wait their turn
Kind = TypeVar("Kind", bound=Asked)
Answer = Response | Mapping[str, Any] | list[Any]


def routes(runs: Runs) -> Blueprint:
    """The blueprint of all data routes, under /data."""
    blueprint = Blueprint("data", __name__, url_prefix="/data")
    turn = threading.BoundedSemaphore(ANSWERED_AT_ONCE)

    def add(name: str, answer: Callable[[View], Answer]) -> None:
        """Answer GET /data/<name>; errors of the product are one line with status 400."""

        def handler() -> Response:
            try:
                with turn:
                    result = answer(view_of(runs.open_runs, parse_query(request.query_string.decode("latin-1"))))
            except DdprofError as error:
                return Response(clean(str(error)), 400, mimetype="text/plain")
            if isinstance(result, Response):
                return result
            text = json.dumps(result, allow_nan=False, separators=(",", ":"))
            return Response(text, mimetype="application/json")

        blueprint.add_url_rule(f"/{name}", name.replace(".", "_"), handler)

    def add_typed(
        name: str,
        kind: type[Kind],
        answer: Callable[[OpenRun, Kind], Answer],
        of_two: Callable[[Timeline, Kind], Answer] | None = None,
    ) -> None:
        """Add a route with typed parameters. `of_two`: the answer for two runs side by side, where there is one."""

        def typed(view: View) -> Answer:
            of = asked(kind, view.query)
            if not of.beside:
                return answer(view.opened, of)
            if of_two is None:
                raise UsageError(f"{name}: only the timeline of a single run has it")
            return of_two(_both(view, of.beside), of)

        add(name, typed)

    def add_drawn(name: str, kind: type[Kind], answer: Callable[[Timeline, Kind], Answer]) -> None:
        """Add a route whose answer is of a timeline alone, that of a run or of two."""
        add_typed(name, kind, lambda opened, of: answer(_timeline(opened, of), of), answer)

    add_drawn("lanes", Asked, lambda t, a: timeline_info(t, parse_numbers(a.ranks)))
    add_drawn("overview", Asked, lambda t, a: overview(t, parse_numbers(a.ranks)))
    add_drawn("tile", TileAsked, _tile)
    add_drawn("statistics", StatisticsAsked, _statistics)
    add_drawn("step", StepAsked, lambda t, a: one_step(t.steps, a.number))
    add_typed("slice", SliceAsked, _slice, lambda t, a: difference_details(t, a.row))
    add_typed("search", SearchAsked, _search)
    add_typed("places", PlacesAsked, _places)
    add_typed("waits", WindowAsked, lambda o, a: largest_waits(o.job, a.lo, a.hi))
    add_typed("counters", Asked, lambda o, a: o.counters)
    add_typed("arrangement", Asked, lambda o, a: arrangement(o.job))
    add_typed("path", Asked, lambda o, a: path_runs(o.job, o.critical))
    add_typed("trace.json.gz", WindowAsked, _trace)
    add("report.json", _report)
    add("table.csv", _csv)
    return blueprint


def _timeline(opened: OpenRun, of: Asked) -> Timeline:
    """The timeline of a request, with the operators of the ranks in `expanded`."""
    expanded = parse_numbers(of.expanded)
    chosen = () if expanded is None else (rank for rank in opened.job.rank_ids if rank in expanded)
    return opened.timeline_of(frozenset(chosen))


def _both(view: View, beside: str) -> Timeline:
    """The run of the address and another served run, side by side."""
    number = view.number(beside)
    if number is None or number == view.run:
        raise UsageError("the run to compare with is not served")
    return view.opened.beside(view.runs[number])


def _tile(timeline: Timeline, of: TileAsked) -> Response:
    body = encode(timeline, of.lanes_of(timeline.index), of.lo, of.hi, of.bins)
    return Response(body, mimetype="application/octet-stream")


def _statistics(timeline: Timeline, of: StatisticsAsked) -> dict[str, Any]:
    return selection_statistics(timeline, of.lanes_of(timeline.index), of.lo, of.hi, of.step)


def _slice(opened: OpenRun, of: SliceAsked) -> dict[str, Any]:
    return slice_details(_timeline(opened, of), opened.job, of.row)


def _search(opened: OpenRun, of: SearchAsked) -> dict[str, Any]:
    return search(_timeline(opened, of), opened.job, of.text, parse_numbers(of.ranks), of.first)


def _places(opened: OpenRun, of: PlacesAsked) -> dict[str, Any]:
    timeline = _timeline(opened, of)
    lanes, ranks = of.lanes_of(timeline.index), parse_numbers(of.ranks)
    return places(timeline, opened.job, of.text, lanes, of.lo, of.hi, of.bins, ranks)


def _trace(opened: OpenRun, of: WindowAsked) -> Response:
    ranks = parse_numbers(of.ranks)
    packed, holds = hand_over(opened, opened.job.rank_ids if ranks is None else ranks, of.lo, of.hi)
    answer = _download(packed, "application/gzip", "ddprof-trace.json.gz")
    answer.headers["X-Ddprof-Holds"] = holds
    return answer


def _report(view: View) -> Response:
    body = json.dumps(to_contract(view.opened.report), indent=1, allow_nan=False)
    return _download(body, "application/json", "ddprof-report.json")


def _csv(view: View) -> Response:
    page, wanted = page_at("/" + view.query.get("page", "")), view.query.get("id", "")
    for exhibit in page.exhibits(view):
        if exhibit.id == wanted:
            return _download(exhibit.sheet.csv(), "text/csv", f"{exhibit.id}.csv")
    raise UsageError("no such table on this page")


def _download(body: str | bytes, mimetype: str, name: str) -> Response:
    return Response(body, mimetype=mimetype, headers={"Content-Disposition": f'attachment; filename="{name}"'})

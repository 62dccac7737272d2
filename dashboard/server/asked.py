"""Typed parameters of requests: every parameter of an address is parsed here, within its bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.timeline.index import SliceIndex
from ddprof.errors import UsageError

MAX_TIME_NS = 10**18  # 30 years from a run's start; sums of two stay in 64 bits
MAX_SEARCH_CHARS = 200
MAX_BINS = 65_536  # more than any screen has; a tile holds fewer (timeline/tiles.py)
_WHERE = re.compile(r"(?P<what>.*) - at `\$\.(?P<name>\w+)`")

Time = Annotated[int, msgspec.Meta(ge=-MAX_TIME_NS, le=MAX_TIME_NS)]
Words = Annotated[str, msgspec.Meta(max_length=MAX_SEARCH_CHARS)]
Something = TypeVar("Something", bound="Asked")


class Asked(msgspec.Struct, frozen=True):
    """Parameters of every route: the run, and the ranks with operator lanes. Sets of numbers are text: "0-3,7"."""

    run: str = ""
    expanded: str = ""
    beside: str = ""  # another run: the timeline is of both, aligned by step


class LanesAsked(Asked, frozen=True):
    """Lanes of some ranks."""

    ranks: str = ""


class WindowAsked(Asked, frozen=True, kw_only=True):
    """A window of time, in ns since the run's start."""

    lo: Time
    hi: Time

    def __post_init__(self) -> None:
        if self.hi <= self.lo:
            raise ValueError("the window is empty")  # msgspec makes it a ValidationError


class TraceAsked(WindowAsked, frozen=True, kw_only=True):
    """A trace of some ranks, limited to the window in view."""

    ranks: str = ""


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
    """Words, a rank or a step to search on some ranks; hits are returned from the `first` on."""

    text: Words = ""
    ranks: str = ""
    first: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0


class PlacesAsked(TileAsked, frozen=True, kw_only=True):
    """A window in which hits are located, and further ranks whose lanes are outside it."""

    text: Words = ""
    ranks: str = ""


def asked(kind: type[Something], query: Mapping[str, str]) -> Something:
    """The parameters of an address as a type. Raises UsageError, in one line, where one is missing or wrong."""
    try:
        return msgspec.convert(dict(query), kind, strict=False)
    except msgspec.ValidationError as error:
        match = _WHERE.fullmatch(str(error))
        raise UsageError(f"{match['name']}: {match['what']}" if match else str(error)) from error

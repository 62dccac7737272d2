"""Interface of a file format: how its files are recognised, read, and split into workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from json import JSONDecoder

from msgspec import Struct

from ddprof.model import HealthNote, RankTrace
from ddprof.readers.source import Source

_EVENT = re.compile(rb'"ph"\s*:')
_EVENT_LIST = re.compile(rb'"traceEvents"\s*:')
_JSON = re.compile(rb'\{\s*(?:["}]|$)|(?:\[\s*)+(?:[{"\]]|-?\d[\d.eE+-]*\s*[,\]]|true|false|null|$)')
_MOST_SETTINGS_BYTES = 1 << 16  # arguments of frameworks have some 20 KB


@dataclass(frozen=True)
class Sample:
    """Bytes by which a file is recognised: its first unpacked ones, or all of a shorter file.

    `tail` holds the last bytes of a parquet file, where its columns are named, and nothing of any other file.
    """

    head: bytes
    tail: bytes = b""

    @cached_property
    def text(self) -> bytes:
        """The head without a byte order mark and leading white space."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @property
    def is_list(self) -> bool:
        """True for JSON whose root is a list."""
        return self.text.startswith(b"[")

    @property
    def is_object(self) -> bool:
        """True for JSON whose root (or first line) is an object."""
        return self.text.startswith(b"{")

    @cached_property
    def is_json(self) -> bool:
        """True for text that begins as JSON does, and on which no other text follows: a log may begin with its
        settings, and mpirun marks lines with "[1,0]<stderr>".
        """
        if _JSON.match(self.text) is None or self.has_events:
            return self.has_events
        text = self.text[:_MOST_SETTINGS_BYTES].decode("utf-8", "replace")
        try:
            _, end = JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):  # it goes on beyond that, or is damaged
            return True
        rest = text[end:].lstrip().encode()
        return not rest or rest[:1] == b"," or _JSON.match(rest) is not None

    @cached_property
    def has_events(self) -> bool:
        """True where an event of Chrome's trace format occurs."""
        return self.has(_EVENT)

    @cached_property
    def may_hold_events(self) -> bool:
        """True for a list, or an object with events or with a list of them."""
        return self.is_list or (self.is_object and (self.has(_EVENT_LIST) or self.has_events))

    def has(self, mark: re.Pattern[bytes], literals: tuple[bytes, ...] = ()) -> bool:
        """True where a mark occurs anywhere in the text.

        `literals`: texts of which every such mark contains one; searching them first is a hundred times faster than the
        expression.
        """
        if literals and not any(literal in self.text for literal in literals):
            return False
        return mark.search(self.text) is not None


class Format(Struct, frozen=True):
    """One file format: `name` is used in sources and reports, `what` describes one file for people.

    `parts` names the workers in a file with several, each read separately. `is_run`: a file is a whole run, not one
    rank. `generality`: formats with marks of their own (0) are tried before general ones. `is_sure`: the beginning of a
    file identifies it, so that no other marks are searched. `chosen`: of several files the ones to read, with notes on
    the others. `holds_events`: files of other formats are not traces and are analyzed only when given alone. `missing`:
    what a file is and what to install, where its reader is not installed.
    """

    name: str
    what: str
    recognise: Callable[[Sample], bool]
    read: Callable[[Source], RankTrace]
    parts: Callable[[Source], list[str]] | None = None
    is_run: bool = True
    generality: int = 0
    is_sure: Callable[[Sample], bool] | None = None
    chosen: Callable[[list[Source]], tuple[list[Source], list[HealthNote]]] | None = None
    holds_events: bool = True
    missing: Callable[[], str | None] | None = None
    is_late: Callable[[bytes], bool] | None = None
    aside: Callable[[Source], str | None] | None = None

"""Interface: what a file format is to the readers: how a file of it is recognised, read, and divided into workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ddprof.model import HealthNote, RankTrace
from ddprof.readers.source import Source

_EVENT = re.compile(rb'"ph"\s*:')
_EVENT_LIST = re.compile(rb'"traceEvents"\s*:')


@dataclass(frozen=True)
class Sample:
    """Record of what a file is recognised by, as names lie: its first unpacked bytes, or all where it is shorter.

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
        """JSON whose root is a list."""
        return self.text.startswith(b"[")

    @property
    def is_object(self) -> bool:
        """JSON whose root (or first line) is an object."""
        return self.text.startswith(b"{")

    @cached_property
    def has_events(self) -> bool:
        """True where an event of Chrome's trace format occurs."""
        return self.has(_EVENT)

    @cached_property
    def may_hold_events(self) -> bool:
        """A list, or an object with events or with a list of them."""
        return self.is_list or (self.is_object and (self.has(_EVENT_LIST) or self.has_events))

    def has(self, mark: re.Pattern[bytes], literals: tuple[bytes, ...] = ()) -> bool:
        """True where a mark occurs anywhere in the text.

        `literals`: what stands, one or the other, in every such mark. Most files hold none, which is seen a hundred
        times as fast as by the expression.
        """
        if literals and not any(literal in self.text for literal in literals):
            return False
        return mark.search(self.text) is not None


@dataclass(frozen=True)
class Format:
    """One file format: `name` is that of sources and reports, `what` describes one file of it to a person.

    `parts` names the workers of a file that holds several, each of which is read on its own. `is_run`: a file is a
    whole run, not one rank of one. `generality`: those with marks of their own (0) are asked before those that take
    whatever others left. `is_sure`: a file begins as no other program's does, whatever else is in it, which spares the
    search for the marks of all others. `chosen`: of several files of the format, those to read, with notes on the
    others. `holds_events`: what does not is no trace, and is analyzed where nothing else was given. `missing`: what a
    file of it is and what to install, for a person, where what reads it is not on this machine.
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

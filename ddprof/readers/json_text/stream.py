"""A stream of trace events out of JSON text of any layout, in bounded memory.

A block is cut at a guess (the last "}, {" in the buffer) and the guess is proved by the parser: text that parses as a
whole list up to a point ended outside any string, between two events. Where the proof fails the real depth is
computed (`structure`); where the text itself is broken, what is sound is salvaged (`salvage`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import msgspec

from ddprof.errors import NoUsableInput
from ddprof.readers.json_text.salvage import Salvage
from ddprof.readers.json_text.structure import Structure, structure

B = TypeVar("B", bound=Sized)  # what a block decodes to
T = TypeVar("T")  # an event
MAX_EVENT_BYTES = 64 << 20  # beyond this without an event boundary the text is not a list of events
MAX_OPEN_BYTES = 16 << 20  # beyond this an event that does not end is taken for damage
MAX_HEADER_BYTES = 512 << 20
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_KEY = b'"traceEvents"'
_LINE_BOUNDARY = re.compile(rb"\}[ \t\r]*\n\s*\{")
_FOOTER = re.compile(rb"\s*,?\s*\]")
_BAD = (msgspec.DecodeError, UnicodeDecodeError)


@dataclass
class Damage:
    """What could not be read: where the first defect is, and how much text was given up."""

    first_offset: int | None = None
    lost_bytes: int = 0
    spots: int = 0
    truncated: bool = False
    replaced_bytes: bool = False

    def add(self, offset: int, lost_bytes: int) -> None:
        """Record one spot of `lost_bytes` unreadable bytes at `offset` of the unpacked text."""
        if self.first_offset is None:
            self.first_offset = offset
        self.lost_bytes += lost_bytes
        self.spots += 1


@dataclass
class EventStream(Generic[B, T]):
    """Decodes the events of a trace, block by block.

    `decode` parses a JSON list, to a list or whatever else has a length, and raises msgspec errors; `salvage` gets what
    it can out of text that `decode` rejects. After iteration, `header` and `footer` hold the text around the list,
    `damage` what was lost.
    """

    chunks: Iterator[bytes]
    decode: Callable[[bytes], B]
    salvage: Callable[[bytes], Salvage[T]]
    header: bytes = b""
    footer: bytes = b""
    damage: Damage = field(default_factory=Damage)
    is_list_root: bool = False
    _offset: int = 0

    def __iter__(self) -> Iterator[B | list[T]]:
        buffer, tried = self._find_events(), 0
        for chunk in self.chunks:
            quick = self._quick(buffer, chunk) if not tried else None
            if quick is not None:
                batch, buffer = quick
                yield batch
                continue
            buffer += chunk
            if len(buffer) < 2 * tried:
                continue  # doubling, so that one long event is looked at a bounded number of times
            cut = last_boundary(buffer)
            if cut is None:
                if len(buffer) > MAX_EVENT_BYTES:
                    raise NoUsableInput("no event boundary within 64 MB: not a list of trace events")
                tried = len(buffer)
                continue
            before = len(buffer)
            events, buffer, done = self._batch(buffer, cut)
            tried = before if len(buffer) == before else 0
            if events:
                yield events
            if done:
                self._collect_footer(buffer)
                return
        yield from self._finish(buffer)

    def _quick(self, rest: bytes, chunk: bytes) -> tuple[B, bytes] | None:
        """The ordinary case, with one copy of the text: the new chunk holds a boundary and all before it is sound."""
        cut = last_boundary(chunk)
        if cut is None:
            return None
        try:
            batch = self.decode(b"".join((b"[", rest, memoryview(chunk)[:cut], b"]")))
        except _BAD:
            return None
        left = _after_comma(chunk[cut:])
        self._offset += len(rest) + len(chunk) - len(left)
        return batch, left

    def _find_events(self) -> bytes:
        """Read up to the first event; sets `header`. Returns the text after the opening bracket."""
        buffer, checked = b"", 0
        for chunk in self.chunks:
            buffer += chunk
            buffer = buffer.removeprefix(_BOM).lstrip(_SPACE)  # every time: a chunk may end inside the mark
            if len(buffer) < 2 * checked and len(buffer) < MAX_HEADER_BYTES:
                continue  # doubling, so that a long header is scanned a bounded number of times
            checked = len(buffer)
            found = self._try_start(buffer)
            if found is not None:
                return found
        found = self._try_start(buffer)
        if found is None:
            raise NoUsableInput(_not_a_trace(buffer))
        return found

    def _try_start(self, buffer: bytes) -> bytes | None:
        if buffer.startswith(b"["):
            self.is_list_root = True
            self._offset = 1
            return buffer[1:]
        if not buffer.startswith(b"{"):
            return None
        shape = structure(buffer)
        start = _events_start(buffer, shape)
        if start is not None:
            self.header = buffer[:start]
            self._offset = start
            return buffer[start:]
        end = shape.first_end()
        if end is not None and buffer[end:].lstrip(_SPACE).startswith(b"{"):
            return self._as_lines(buffer)
        return None

    def _as_lines(self, buffer: bytes) -> bytes:
        """One event a line: insert the commas, so that the rest sees one list."""
        self.is_list_root = True
        self.chunks = _lines_to_list(_chain(buffer, self.chunks))
        return b""

    def _batch(self, buffer: bytes, cut: int) -> tuple[B | list[T], bytes, bool]:
        """Decode up to `cut`: the events, the rest of the buffer, and whether the list has ended."""
        try:
            batch = self.decode(b"".join((b"[", memoryview(buffer)[:cut], b"]")))
        except _BAD:
            return self._careful(buffer, cut)
        return batch, self._advance(buffer, cut), False

    def _careful(self, buffer: bytes, cut: int) -> tuple[B | list[T], bytes, bool]:
        """The guess was wrong, the list ends here, an event is odd, or the text is damaged."""
        shape = structure(buffer)
        close, last_end = shape.close(), shape.last_end()
        if close is None and last_end is None and len(buffer) < MAX_OPEN_BYTES:
            return [], buffer, False  # the boundary is inside an event that goes on: more text is needed
        for end in (close, last_end):
            if end is None:
                continue
            batch = self._sound(buffer[:end])
            if batch is not None:
                rest = buffer[end:] if end == close else self._advance(buffer, end)
                return batch, rest, end == close
        saved = self.salvage(buffer[:cut])
        self._record(saved)
        return saved.events, self._advance(buffer, cut), False

    def _sound(self, text: bytes) -> B | list[T] | None:
        """The events of `text` if it is a list without damage (oddities of single events allowed), else None."""
        try:
            return self.decode(b"".join((b"[", text, b"]")))
        except _BAD:
            saved = self.salvage(text)
        if saved.lost:
            return None
        self.damage.replaced_bytes |= saved.replaced_bytes
        return saved.events

    def _record(self, saved: Salvage[T]) -> None:
        self.damage.replaced_bytes |= saved.replaced_bytes
        for start, end in saved.lost:
            self.damage.add(self._offset + start, end - start)

    def _advance(self, buffer: bytes, cut: int) -> bytes:
        rest = _after_comma(buffer[cut:])
        self._offset += len(buffer) - len(rest)
        return rest

    def _finish(self, buffer: bytes) -> Iterator[B | list[T]]:
        """The file has ended: the rest should be the last events, the closing bracket and the footer."""
        close = structure(buffer).close()
        if close is not None:
            batch = self._sound(buffer[:close])
            if batch is not None:
                self.footer = buffer[close + 1 :]
                yield batch
                return
        if not buffer.strip(_SPACE):
            self.damage.truncated = not self.is_list_root  # a list may stay open: Chrome's format allows it
            return
        saved = self.salvage(buffer)
        found = _FOOTER.match(buffer, saved.last_end)
        if found:
            self.footer = buffer[found.end() :]
            saved = replace(saved, lost=[span for span in saved.lost if span[0] < saved.last_end])
        else:
            self.damage.truncated = not self.is_list_root or bool(saved.lost)
        self._record(saved)
        yield saved.events

    def _collect_footer(self, rest: bytes) -> None:
        self.footer = b"".join((rest[1:], *self.chunks))


def _after_comma(text: bytes) -> bytes:
    return text.lstrip(_SPACE).removeprefix(b",")


def last_boundary(buffer: bytes) -> int | None:
    """Offset just after the "}" of the last "}, {" in the buffer.

    None if there is none. A guess: it may be inside a string.
    """
    at = len(buffer)
    while (at := buffer.rfind(b"{", 0, at)) > 0:
        comma = _before(buffer, at)
        if comma < 0 or buffer[comma] != 0x2C:
            continue
        end = _before(buffer, comma)
        if end >= 0 and buffer[end] == 0x7D:
            return end + 1
    return None


def _before(buffer: bytes, at: int) -> int:
    at -= 1
    while at >= 0 and buffer[at] in _SPACE:
        at -= 1
    return at


def _events_start(buffer: bytes, shape: Structure) -> int | None:
    at = -1
    while (at := buffer.find(_KEY, at + 1)) >= 0:
        if shape.depth_at(at) != 1 or not shape.opens_string(at):
            continue
        rest = buffer[at + len(_KEY) : at + len(_KEY) + 64].lstrip(_SPACE)
        if rest.startswith(b":") and rest[1:].lstrip(_SPACE).startswith(b"["):
            return buffer.index(b"[", at + len(_KEY)) + 1
    return None


def _chain(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from chunks


def _lines_to_list(chunks: Iterator[bytes]) -> Iterator[bytes]:
    held = b""
    for chunk in chunks:
        text = held + chunk
        cut = text.rfind(b"\n")
        cut = text.rfind(b"\n", 0, cut) if cut > 0 else cut  # keep a whole line back: its boundary may span two chunks
        if cut <= 0:
            held = text
            continue
        yield _LINE_BOUNDARY.sub(b"},\n{", text[:cut])
        held = text[cut:]
    yield _LINE_BOUNDARY.sub(b"},\n{", held)


def _not_a_trace(buffer: bytes) -> str:
    if not buffer:
        return "the file is empty"
    if not buffer.startswith((b"{", b"[")):
        return "not JSON"
    return "JSON without a list of trace events"

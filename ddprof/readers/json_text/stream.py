"""A stream of trace events out of JSON text of any layout, in bounded memory.

A block is cut at a guess (the last "}, {" in the buffer) and the guess is proved by the parser: text that parses as a
whole list up to a point ended outside any string, between two events. Where the proof fails the real depth is computed
(`ends`); broken text is salvaged (`salvage`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

import msgspec

from ddprof.errors import NoUsableInput
from ddprof.readers.json_text.damage import Damage
from ddprof.readers.json_text.salvage import Salvage, is_list_end
from ddprof.readers.json_text.structure import Beginning, Start, TextLayout, ends

B = TypeVar("B", bound=Sized)  # what a block decodes to
T = TypeVar("T")  # an event
# Beyond this many bytes text that does not end between two events is taken for damage: a hundred times the longest
# event of a real trace.
MAX_EVENT_BYTES = 16 << 20
MAX_FOOTER_BYTES = 4 << 20  # kept of the values behind the list: real ones are some KB, group lists of large jobs 1 MB
_FOOTER_END_BYTES = 1 << 16  # of a longer footer the end is kept too: the clock base may stand there
_TRIES = 16  # braces from the end of a buffer before all of it is searched for a boundary
_SPACE = b" \t\r\n"
_LINE_BOUNDARY = re.compile(rb"\}[ \t\r]*\n\s*\{")
_BOUNDARY = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_BOUNDARY_END = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\Z")
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass
class EventStream(Generic[B, T]):
    """Decoder of a trace's events, block by block.

    `decode` parses a JSON list, to a list or whatever else has a length, and raises msgspec errors; `salvage` recovers
    events from text that `decode` rejects, given whether more follows. After iteration, `header` and `footer` hold the
    text around the list, `damage` the losses.
    """

    chunks: Iterator[bytes]
    decode: Callable[[bytes], B]
    salvage: Callable[[bytes, bool], Salvage[T]]
    header: bytes = b""
    footer: bytes = b""
    damage: Damage = field(default_factory=Damage)
    is_list_root: bool = False
    _offset: int = 0

    def __iter__(self) -> Iterator[B | list[T]]:
        self.chunks = self._counted(self.chunks)
        for batch in self._batches():
            self.damage.kept_events += len(batch)
            yield batch

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.damage.seen_bytes += len(chunk)
            yield chunk

    def _batches(self) -> Iterator[B | list[T]]:
        buffer, tried = self._find_events(), 0
        for chunk in self.chunks:
            quick = self._quick(buffer, chunk) if not tried else None
            if quick is not None:
                batch, buffer = quick
                yield batch
                continue
            buffer += chunk
            if len(buffer) < min(2 * tried, MAX_EVENT_BYTES):
                continue  # doubling, so that one long event is looked at a bounded number of times
            before = len(buffer)
            events, buffer, done = self._batch(buffer)
            tried = before if len(buffer) == before else 0
            if events:
                yield events
            if self.damage.is_hopeless:
                return
            if done:
                self._collect_footer(buffer)
                return
        yield from self._finish(buffer)

    def _quick(self, rest: bytes, chunk: bytes) -> tuple[B, bytes] | None:
        """The ordinary case, with one copy of the text: the new chunk holds a boundary, and all before it is sound."""
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
        beginning, start = Beginning(), None
        for chunk in self.chunks:
            start = beginning.add(chunk, False)
            if start is not None:
                break
        start = start or beginning.add(b"", True) or Start(TextLayout.NONE)
        text = bytes(beginning.text)
        if start.layout == TextLayout.NONE:
            raise NoUsableInput(_not_a_trace(text))
        if start.layout == TextLayout.LINES:
            return self._as_lines(text)
        self.is_list_root = start.layout == TextLayout.LIST
        self.header = b"" if self.is_list_root else text[: start.offset]
        self._offset = start.offset
        return text[start.offset :]

    def _as_lines(self, buffer: bytes) -> bytes:
        """Insert commas between one event a line, so that the rest of the reader sees one list."""
        self.is_list_root = True
        self.chunks = _lines_to_list(chain([buffer], self.chunks))
        return b""

    def _batch(self, buffer: bytes, is_last: bool = False) -> tuple[B | list[T], bytes, bool]:
        """Decode the whole events of a buffer; return them, the rest, and whether the list has ended."""
        if not is_last:
            cut = last_boundary(buffer)
            if cut is None and len(buffer) < MAX_EVENT_BYTES:
                return [], buffer, False  # more text is needed
            batch = self._decoded(buffer[:cut]) if cut is not None else None
            if batch is not None:
                return batch, self._advance(buffer, cut), False
        # The guess was wrong, the list ends here, an event is odd, or the text is damaged.
        close, last_end = ends(buffer)
        if close is not None and is_list_end(buffer, close, is_last):
            batch = self._decoded(buffer[:close])
            if batch is not None:
                return batch, self._advance(buffer, close), True
        batch = self._decoded(buffer[:last_end]) if last_end is not None else None
        if batch is not None and not is_last:
            return batch, self._advance(buffer, last_end), False
        if batch is not None:  # what follows, its comma too, is what is lost of a file that ends there
            self._offset += last_end or 0
            return batch, buffer[last_end:], False
        return self._salvaged(buffer, is_last)

    def _decoded(self, text: bytes) -> B | None:
        try:
            return self.decode(b"".join((b"[", text, b"]")))
        except _BAD:
            return None

    def _salvaged(self, buffer: bytes, is_last: bool) -> tuple[list[T], bytes, bool]:
        """Recover the sound events of damaged text; return them, the rest, and whether the list has ended."""
        saved = self.salvage(buffer, is_last)
        if saved.end == 0 and saved.close is None and len(buffer) >= MAX_EVENT_BYTES:
            saved = self.salvage(buffer, True)
        self.damage.replaced += saved.replaced
        self.damage.mended += saved.mended
        for start, end in saved.lost:
            self.damage.add(self._offset + start, buffer[start:end])
        return saved.events, self._advance(buffer, saved.end), saved.close is not None

    def _advance(self, buffer: bytes, cut: int | None) -> bytes:
        rest = _after_comma(buffer[cut:])
        self._offset += len(buffer) - len(rest)
        return rest

    def _finish(self, buffer: bytes) -> Iterator[B | list[T]]:
        """End of the file: read the last events, the closing bracket and the footer."""
        if not buffer.strip(_SPACE):
            self.damage.truncated = not self.is_list_root  # a list may stay open: Chrome's format allows it
            return
        spots, is_closed = self.damage.spots, False
        while _after_comma(buffer) and not is_closed:  # what is sound, and what is salvaged of the rest
            events, buffer, is_closed = self._batch(buffer, True)
            yield events
        if is_closed:
            self._collect_footer(buffer)
        else:
            self.damage.truncated = not self.is_list_root or self.damage.spots > spots

    def _collect_footer(self, rest: bytes) -> None:
        """Collect the root's other values behind the list's closing bracket, and nothing after the root."""
        footer = rest[1:]
        for chunk in self.chunks:
            footer += chunk
            if len(footer) > MAX_FOOTER_BYTES:
                break
        close = -1 if self.is_list_root else ends(footer)[0]
        if close is None:
            end = b""
            for chunk in self.chunks:
                end = (end + chunk)[-_FOOTER_END_BYTES:]
            self.footer = footer + end
            return
        self.footer, behind = footer[: close + 1], footer[close + 1 :]
        at = self._offset + close + 2
        for text in chain([behind], self.chunks):
            if self.damage.is_hopeless:
                return
            if text.strip(_SPACE):
                self.damage.add(at, text)
            at += len(text)


def _after_comma(text: bytes) -> bytes:
    return text.lstrip(_SPACE).removeprefix(b",")


def last_boundary(buffer: bytes) -> int | None:
    """Offset just after the "}" of the last "}, {" in the buffer.

    None if there is none. A guess: it may be inside a string.
    """
    at = len(buffer)
    for _ in range(_TRIES):
        at = buffer.rfind(b"{", 0, at)
        if at <= 0:
            return None
        match = _BOUNDARY_END.search(buffer, max(at - 64, 0), at)
        if match is not None:
            return match.start() + 1
    ends = [match.start() + 1 for match in _BOUNDARY.finditer(buffer, 0, at + 1)]
    return ends[-1] if ends else None


def _lines_to_list(chunks: Iterator[bytes]) -> Iterator[bytes]:
    held = b""
    for chunk in chunks:
        text = held + chunk
        cut = text.rfind(b"\n")
        cut = text.rfind(b"}", 0, cut) if cut > 0 else cut  # kept back: a boundary may span two chunks
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

"""Damage of a file's events: number lost, share of the text, and times."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddprof.model import HealthNote

_EVENT = re.compile(rb'"ph"\s*:')
_TIME = re.compile(rb'"ts"\s*:\s*"?(-?\d{1,19}(?:\.\d{1,9})?)')
# Text without an event in it that is looked through, at up to 0.13 s per MiB; four times the longest event.
MOST_FRUITLESS_BYTES = 64 << 20
_TEXT = re.compile(rb'[\w"]')  # what is lost without it are brackets and commas


@dataclass
class Damage:
    """Events that could not be read, and those kept with a defect.

    `lost_events` counts recognisable remains of events in abandoned text. `first_us`, `last_us`: their times as
    written. `mended`: events kept without a value that was invalid or of the wrong type. `packing`: the defect at which
    the file could not be unpacked further.
    """

    first_offset: int | None = None
    lost_bytes: int = 0
    lost_events: int = 0
    first_us: float | None = None
    last_us: float | None = None
    spots: int = 0
    truncated: bool = False
    replaced: int = 0
    mended: int = 0
    kept_events: int = 0
    seen_bytes: int = 0
    packing: str | None = None
    _lost_until: int = -1
    _fruitless_bytes: int = 0  # lost since the last event
    _kept_before: int = 0

    def add(self, offset: int, text: bytes) -> None:
        """Add one stretch of unreadable text at `offset` of the unpacked file, or extend the last one."""
        if self.first_offset is None:
            self.first_offset = offset
        self.lost_bytes += len(text)
        self._fruitless_bytes = len(text) + self._fruitless_bytes * (self.kept_events == self._kept_before)
        self._kept_before = self.kept_events
        self.spots += offset != self._lost_until
        self._lost_until = offset + len(text)
        if _TEXT.search(text) is not None:
            self.lost_events += max(len(_EVENT.findall(text)), 1)
        for match in _TIME.finditer(text):
            us = float(match[1])
            self.first_us = us if self.first_us is None else min(self.first_us, us)
            self.last_us = us if self.last_us is None else max(self.last_us, us)

    @property
    def is_hopeless(self) -> bool:
        """True where the rest of the text is not looked at."""
        return self._fruitless_bytes > MOST_FRUITLESS_BYTES

    def notes(self, label: str) -> list[HealthNote]:
        """A note on lost events, and one on missing or odd values in the kept ones."""
        notes = []
        if self.packing:
            notes.append(HealthNote(f"{label}: {self.packing}", "events after that point are missing", "error"))
        if self.is_hopeless:
            issue = f"{label}: no event in {self._fruitless_bytes >> 20} MiB of text"
            notes.append(HealthNote(issue, "the rest of the file is not read", "error"))
        if self.truncated:
            where = f" after byte {self.first_offset:,}" if self.first_offset is not None and self.spots == 1 else ""
            issue = f"{label}: the file ends inside the event list{where}"
            notes.append(HealthNote(issue, "later events are missing", "error"))
        if self.spots and not (self.truncated and self.spots == 1 and self.lost_events <= 1):
            notes.append(self._lost(label))
        if self.mended:
            notes.append(mended_note(label, self.mended))
        if self.replaced:
            issue = f"{label}: bytes that are not UTF-8 in {_events(self.replaced)}"
            notes.append(HealthNote(issue, "replaced by a placeholder", "info"))
        return notes

    def _lost(self, label: str) -> HealthNote:
        places = "1 place" if self.spots == 1 else f"{self.spots:,} places"
        issue = (
            f"{label}: damaged text at byte {self.first_offset:,}: {self.lost_bytes:,} bytes in {places} lost "
            f"({_share(self.lost_bytes, self.seen_bytes)} of the file)"
        )
        if not self.lost_events:
            return HealthNote(issue, "no event is missing because of it")
        share = _share(self.lost_events, self.lost_events + self.kept_events)
        when = f", of times {self.first_us:.3f} to {self.last_us:.3f} us" if self.first_us is not None else ""
        return HealthNote(issue, f"{_events(self.lost_events)} ({share}) missing{when}; all others are used", "error")


def mended_note(label: str, events: int) -> HealthNote:
    """A note on events kept without one of their values."""
    return HealthNote(f"{label}: {_events(events)} with an invalid value", "kept without that value", "info")


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"


def _share(part: int, whole: int) -> str:
    percent = 100 * part / max(whole, 1)
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"

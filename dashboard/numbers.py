"""Numbers in an address as ranges: "0-3,7". Ranges are never expanded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ddprof.errors import UsageError

MAX_DIGITS = 9  # ranks, steps and lanes stay below 10^9; longer digits are nobody's number
MAX_SHOWN_CHARS = 40  # of what was asked, in an error line


@dataclass(frozen=True)
class Numbers:
    """A set of natural numbers as sorted, disjoint ranges (first, last), no larger than the text it was parsed from."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, (number, float("inf"))) - 1
        return at >= 0 and number <= self.ranges[at][1]

    @property
    def last(self) -> int:
        """The largest of the numbers."""
        return self.ranges[-1][1]

    def below(self, count: int) -> Iterator[int]:
        """Members of the set among 0 ... count - 1, in order."""
        for first, last in self.ranges:
            yield from range(first, min(last + 1, count))


def parse_numbers(text: str) -> Numbers | None:
    """Numbers from "0-3, 7"; None for "". Raises UsageError, in one line, for anything else."""
    ranges = sorted(_range(part) for part in text.replace(" ", "").split(",") if part)
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return Numbers(tuple(merged)) if merged else None


def place(text: str, count: int) -> int | None:
    """The position that an address names among `count` things; None where there is none."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else count
    return number if number < count else None


def _range(part: str) -> tuple[int, int]:
    first, dash, last = part.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()) or max(len(first), len(last)) > MAX_DIGITS:
        raise UsageError(f"{part[:MAX_SHOWN_CHARS]!r} is not a number or a range such as 0-3")
    if int(last) < int(first):
        raise UsageError(f"{part[:MAX_SHOWN_CHARS]!r} is not a range")
    return int(first), int(last)

"""What `--ranks` asks for when traces are read."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.errors import UsageError

ALL = "all"
_SAMPLE = "sample:"


@dataclass(frozen=True)
class Wanted:
    """`text` as it was given; `named` ranks are read in any case, others until there are `count`. All: neither."""

    text: str = ALL
    named: tuple[int, ...] = ()
    count: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether every rank is read."""
        return not self.named and self.count is None

    def and_rank(self, rank: int) -> str:
        """The text that asks for one rank more."""
        named = [str(number) for number in (*self.named, rank)]
        return ",".join(named if self.count is None else [f"{_SAMPLE}{self.count + 1}", *named])


def parse_ranks(text: str) -> Wanted:
    """ "all", "0,7", "sample:32" or "sample:32,7" (7 and 31 others). Raises UsageError."""
    if text == ALL:
        return Wanted()
    named, count = [], None
    for part in text.split(","):
        number = part.removeprefix(_SAMPLE)
        if not (number.isascii() and number.isdigit()) or (part != number and (count is not None or not int(number))):
            raise UsageError(f"--ranks {text}: want all, a list like 0,7, sample:32, or sample:32,7")
        if part == number:
            named.append(int(number))
        else:
            count = int(number)
    return Wanted(text, tuple(dict.fromkeys(named)), count)

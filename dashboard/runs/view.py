"""What the address says is being looked at: the run, the ranks, the steps, the colours.

A copied link shows the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode

from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.errors import UsageError

MAX_NUMBERS = 100_000


@dataclass(frozen=True)
class View:
    """One request. `ranks` and `steps` are None where the address does not restrict them."""

    opened: OpenRun
    query: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[OpenRun, ...] = ()
    dark: bool = False
    upload_bytes: int = 0  # the largest upload that is taken; 0: none

    @property
    def run(self) -> int:
        """Number of the run among those served."""
        return run_number(self.query, len(self.runs) or 1)

    @property
    def ranks(self) -> frozenset[int] | None:
        """Rank numbers to show."""
        return parse_numbers(self.query.get("ranks", ""))

    @property
    def steps(self) -> frozenset[int] | None:
        """Positions of steps to show, 0 = first step of the window."""
        return parse_numbers(self.query.get("steps", ""))

    def shows(self, rank: int) -> bool:
        """Whether the rank passes the filter."""
        return self.ranks is None or rank in self.ranks

    def shows_step(self, step: int) -> bool:
        """Whether the step (by position) passes the filter."""
        return self.steps is None or step in self.steps

    @property
    def kept(self) -> dict[str, str]:
        """What of the query other addresses of the same view have too."""
        return {k: v for k, v in self.query.items() if k in ("run", "ranks", "steps", "against")}

    def link(self, path: str, **changes: str) -> str:
        """Address of another page with the same run and filters."""
        query = {k: v for k, v in {**self.kept, **changes}.items() if v}
        return path + ("?" + urlencode(query) if query else "")


def parse_query(search: str) -> dict[str, str]:
    """The query of an address; of repeated keys the last."""
    return {key: values[-1] for key, values in parse_qs(search.lstrip("?")).items()}


def run_number(query: Mapping[str, str], count: int) -> int:
    """The run the address asks for; the first where it asks for none that exists."""
    text = query.get("run", "")
    return int(text) if text.isdecimal() and int(text) < count else 0


def parse_numbers(text: str) -> frozenset[int] | None:
    """Numbers from "0-3, 7"; None for "". Raises UsageError, in one line, for anything else."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if not part:
            continue
        if not first.isdecimal() or (last and not last.isdecimal()) or part.endswith("-"):
            raise UsageError(f"{part!r} is not a number or a range such as 0-3")
        lo, hi = int(first), int(last or first)
        if hi < lo or hi - lo > MAX_NUMBERS:
            raise UsageError(f"{part!r} is not a range")
        found.update(range(lo, hi + 1))
    return frozenset(found) or None

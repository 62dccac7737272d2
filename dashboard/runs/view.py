"""The view that an address selects: run, ranks, steps, colours. A copied link shows the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import parse_qsl, urlencode

from ddprof.dashboard.numbers import Numbers, parse_numbers
from ddprof.dashboard.runs.names import named_run, run_ids, run_names
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.errors import UsageError
from ddprof.units import format_ranks

MAX_QUERY_CHARS = 32_000  # lanes of a timeline of thousands of ranks are the longest that a page of ours asks for
MAX_PARAMETERS = 40  # the What-if page writes one for each of its controls


@dataclass(frozen=True)
class View:
    """One request. `ranks` and `steps` are None where the address does not restrict them."""

    opened: OpenRun
    query: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[OpenRun, ...] = ()
    dark: bool = False
    upload_bytes: int = 0  # the largest upload that is taken; 0: none
    perfetto_ui: str = ""  # where the timeline's button leads

    @property
    def run(self) -> int:
        """Number of the run among those served."""
        return self.number(self.query.get("run", "")) or 0

    def number(self, text: str) -> int | None:
        """Position of the served run that a text names, by identifier or number; None where there is none."""
        return named_run(text, [run.report for run in self.runs])

    @cached_property
    def ids(self) -> list[str]:
        """The identifiers of the served runs, as addresses name them."""
        return run_ids([run.report for run in self.runs])

    @cached_property
    def names(self) -> list[str]:
        """The unique names of the served runs."""
        return run_names([run.report for run in self.runs])

    @cached_property
    def ranks(self) -> Numbers | None:
        """Rank numbers to show. Raises UsageError, also where none of the run's ranks is among them."""
        chosen, recorded = parse_numbers(self.query.get("ranks", "")), self.opened.report.run.ranks
        if chosen is not None and recorded and not any(rank in chosen for rank in recorded):
            raise UsageError(f"none of the chosen ranks is in this run: it has {format_ranks(recorded)}")
        return chosen

    @cached_property
    def steps(self) -> Numbers | None:
        """Positions of steps to show, 0 = first step of the window. Raises UsageError, also where there is none."""
        chosen, count = parse_numbers(self.query.get("steps", "")), self.opened.step_count
        if chosen is not None and count and not any(step in chosen for step in range(count)):
            raise UsageError(f"none of the chosen steps is in this run: it has steps 0 to {count - 1}")
        return chosen

    def shows(self, rank: int) -> bool:
        """True where the rank passes the filter."""
        return self.ranks is None or rank in self.ranks

    def shows_step(self, step: int) -> bool:
        """True where the step (by position) passes the filter."""
        return self.steps is None or step in self.steps

    @property
    def filtered(self) -> tuple[str, ...]:
        """The filters that the address sets."""
        return tuple(name for name, chosen in (("ranks", self.ranks), ("steps", self.steps)) if chosen is not None)

    @property
    def kept(self) -> dict[str, str]:
        """Query parameters that other addresses of the same view share."""
        kept = {k: v for k, v in self.query.items() if k in ("run", "ranks", "steps", "against", "tuning")}
        if len(self.runs) > 1:
            kept |= {k: self.ids[at] for k in ("run", "against") if (at := self.number(kept.get(k, ""))) is not None}
        return kept

    def link(self, path: str, **changes: str) -> str:
        """Address of another page with the same run and filters."""
        query = {k: v for k, v in {**self.kept, **changes}.items() if v}
        return path + ("?" + urlencode(query) if query else "")


def view_of(runs: Sequence[OpenRun], query: Mapping[str, str], dark: bool = False) -> View:
    """The view of an address on the served runs; of the first run where it names none that exists."""
    number = named_run(query.get("run", ""), [run.report for run in runs]) or 0
    return View(runs[number], query, tuple(runs), dark)


def parse_query(search: str) -> dict[str, str]:
    """The query of an address; of repeated keys the last one. Raises UsageError where it is larger than ours can be."""
    if len(search) > MAX_QUERY_CHARS:
        raise UsageError(f"the address is longer than {MAX_QUERY_CHARS:,} characters")
    try:
        return dict(parse_qsl(search.lstrip("?"), max_num_fields=MAX_PARAMETERS))
    except ValueError as error:
        raise UsageError(f"the address has more than {MAX_PARAMETERS} parameters") from error

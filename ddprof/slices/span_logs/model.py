"""Records of what logs of spans say: times of each rank in each step, and what follows from them. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ddprof.report.log_reading import LogFinding
from ddprof.tables import Array

UNNAMED, BETWEEN = "(step, in no span)", "(between steps)"


class Span(NamedTuple):
    """One span as a rank logged it. `number`: of its step, -1 where it states none; `beside`: on another thread than
    the one that trains."""

    name: str
    begin_s: float
    end_s: float
    number: int
    beside: bool


@dataclass(frozen=True)
class SpanLog:
    """Spans by rank, as logged, and who wrote them."""

    label: str
    writer: str
    spans: dict[int, list[Span]]
    torn: int = 0  # lines that are no whole record
    damaged: int = 0  # files whose packing ends early or is broken


@dataclass(frozen=True)
class Run:
    """The steps that all ranks logged, as arrays. `begin_s`, `period_s`: (ranks, steps), from the begin of one step to
    that of the next. `phases`: name -> (ranks, steps), the time in it and in no span inside it. `beside`: name ->
    (ranks, steps), the share of each period during which it ran on another thread.
    """

    ranks: tuple[int, ...]
    numbers: tuple[int, ...]
    begin_s: Array
    period_s: Array
    phases: dict[str, Array]
    beside: dict[str, Array]


@dataclass(frozen=True)
class SpanReport:
    """The reading of the logs of one run."""

    log: SpanLog
    run: Run
    sentence: str
    findings: tuple[LogFinding, ...]
    abstained: tuple[str, ...]

"""Lines of JSON -> spans -> the steps that all ranks have, and what each rank spent them on.

torchtitan (torchtitan#3176) writes a file for each rank; the record that ends a span holds its length in milliseconds:

    {"rank": 0, "source": "training", "step": 5, "log_type_name": "fwd_bwd_end", "value": 12.5, "tid": 71,
     "time_us": 1709500000123456, ...}

Whoever writes other logs may write a line for each span, of one rank or of all in one file (docs/formats.md):

    {"rank": 0, "step": 5, "span": "forward", "start_us": 1709500000110956, "dur_us": 12500}
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.numbers import one_int, one_rank
from ddprof.readers.source import Source
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


STEP = "step"
_LONGEST_LINE = 1 << 16
_MOST_S = 1e7  # from the begin to the end of a span: four months
_Record = tuple[str, int, str, float, float, int, str]  # source, rank, name, begin, end (s), step, thread


def read_span_logs(sources: Sequence[Source]) -> SpanLog:
    """The spans of the files of one run. Raises NoUsableInput where no line is a whole span."""
    by_source: dict[str, list[_Record]] = defaultdict(list)
    torn = damaged = 0
    for source in sources:
        with open_blocks(source.path, source.member) as blocks:
            for line in _lines(blocks):
                record = _record(line)
                if record is None:
                    torn += b"_end" in line or b'"span"' in line
                else:
                    by_source[record[0]].append(record)
            damaged += blocks.damage is not None
    if not by_source:
        raise NoUsableInput(f"{sources[0].label}: a log of spans in which no span is whole")
    # Trainers beside generators of samples have a log each: the one with steps trains.
    trainer = max(by_source, key=lambda of: (sum(r[2] == STEP for r in by_source[of]), len(by_source[of])))
    of_rank: dict[int, list[_Record]] = defaultdict(list)
    for record in by_source[trainer]:
        of_rank[record[1]].append(record)
    spans = {rank: _on_threads(records) for rank, records in sorted(of_rank.items())}
    return SpanLog(sources[0].label, "torchtitan" if trainer else "spans", spans, torn, damaged)


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        whole, _, rest = (rest + block).rpartition(b"\n")
        yield from (line for line in whole.split(b"\n") if b'_end"' in line or b'"span"' in line)
        rest = rest if len(rest) <= _LONGEST_LINE else b""
    if rest.rstrip().endswith(b"}"):
        yield rest


def _record(line: bytes) -> _Record | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or (rank := one_rank(said.get("rank"))) is None:
        return None
    kind, name = said.get("log_type_name"), said.get("span")
    try:
        if isinstance(kind, str) and kind.endswith("_end"):
            name, end_s, length_s = kind.removesuffix("_end"), float(said["time_us"]) / 1e6, float(said["value"]) / 1e3
            begin_s = end_s - length_s
        elif isinstance(name, str):
            begin_s, length_s = float(said["start_us"]) / 1e6, float(said["dur_us"]) / 1e6
            end_s = begin_s + length_s
        else:
            return None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (0 <= length_s < _MOST_S and abs(begin_s) < 1e11):
        return None
    source = said.get("source")
    thread = str((said.get("tid"), said.get("thread"), said.get("task_name")))
    number = one_int(said.get("step"))
    return source if isinstance(source, str) else "", rank, name, begin_s, end_s, max(number, -1), thread


def _on_threads(records: Sequence[_Record]) -> list[Span]:
    """The spans of a rank by begin; those on other threads than those with its steps (one in each process that went on
    with the job), or the one with most spans, are beside."""
    with_steps = {record[6] for record in records if record[2] == STEP}
    main = with_steps or {Counter(record[6] for record in records).most_common(1)[0][0]}
    return sorted(
        (Span(name, begin, end, number, thread not in main) for _, _, name, begin, end, number, thread in records),
        key=lambda span: (span.begin_s, -span.end_s),
    )


FEWEST_STEPS = 3
GRAIN_S = 4e-6  # begins are ends less lengths, both written in microseconds
WARM_UP = 1.5  # of the usual step: what the first ones take while caches fill and kernels are compiled


def run_of(log: SpanLog) -> Run:
    """The run. Raises NoUsableInput where fewer than FEWEST_STEPS steps of all ranks are left."""
    windows = {rank: _windows(spans) for rank, spans in log.spans.items()}
    common = sorted(set.intersection(*map(set, windows.values()))) if windows else []
    if len(common) <= FEWEST_STEPS:
        raise NoUsableInput(f"{log.label}: a log of spans with {len(common)} steps of all ranks, too few to judge")
    low, high = (np.array([[of[n][end] for n in common] for of in windows.values()]) for end in (0, 1))
    period = high - low
    later = np.median(period[:, 1:], axis=0) <= WARM_UP * float(np.median(period))
    first = min(1 + int(np.argmax(later)), len(common) - FEWEST_STEPS)
    phases: dict[str, Array] = {}
    beside: dict[str, Array] = {}
    for row, spans in enumerate(log.spans.values()):
        for name, times in _own_times(spans, low[row], high[row]).items():
            phases.setdefault(name, np.zeros(period.shape))[row] = times
        for name, shares in _beside(spans, low[row], high[row]).items():
            beside.setdefault(name, np.zeros(period.shape))[row] = shares
    phases[BETWEEN] = np.maximum(0.0, period - sum(phases.values(), np.zeros(period.shape)))
    if STEP in phases:
        phases[UNNAMED] = phases.pop(STEP)
    return Run(
        tuple(log.spans),
        tuple(common[first:]),
        low[:, first:],
        period[:, first:],
        {name: times[:, first:] for name, times in phases.items()},
        {name: shares[:, first:] for name, shares in beside.items()},
    )


def _windows(spans: Sequence[Span]) -> dict[int, tuple[float, float]]:
    """Begin of each step of a rank by its number, and that of the next, or the end of the last; s.

    Steps are the spans named so, else all spans of one number. A job that began again from a checkpoint has logged some
    twice: the last ones count, and the step before them ends where its own spans do.
    """
    main = [span for span in spans if not span.beside]
    named = [span for span in main if span.name == STEP]
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    starts_of: dict[int, int] = {}  # how often the job had begun again by then
    last, again = -1, 0
    for at, span in enumerate(named or [span for span in main if span.number >= 0]):
        number = span.number if span.number >= 0 else at
        if number != last or named:
            again += number <= last
            begins[number], starts_of[number] = span.begin_s, again
        ends[number], last = max(span.end_s, ends.get(number, span.end_s)), number
    goes_on = {n for n, t in begins.items() if begins.get(n + 1, t) > t and starts_of[n + 1] == starts_of[n]}
    return {n: (t, begins[n + 1] if n in goes_on else max(ends[n], t + 1e-9)) for n, t in begins.items()}


def _own_times(spans: Sequence[Span], low: Array, high: Array) -> dict[str, Array]:
    """Time in each span and in none inside it, by name and step, s. What a span holds ended before it did."""
    by_name: dict[str, Array] = {}
    ended: list[Span] = []  # in no other span so far
    for span in sorted((s for s in spans if not s.beside), key=lambda s: (s.end_s, -s.begin_s)):
        inside = 0.0
        while ended and ended[-1].begin_s >= span.begin_s - GRAIN_S and ended[-1].end_s > span.begin_s + GRAIN_S:
            inner = ended.pop()
            inside += inner.end_s - inner.begin_s
        ended.append(span)
        step = int(np.searchsorted(low, span.begin_s + GRAIN_S, side="right")) - 1
        if step >= 0 and span.begin_s < high[step]:
            by_step = by_name.setdefault(span.name, np.zeros(len(low)))
            by_step[step] += max(0.0, span.end_s - span.begin_s - inside)
    return by_name


def _beside(spans: Sequence[Span], low: Array, high: Array) -> dict[str, Array]:
    """Share of each step during which spans of a name ran on another thread, at most 1."""
    by_name: dict[str, Array] = {}
    for span in spans:
        if span.beside:
            shares = by_name.setdefault(span.name, np.zeros(len(low)))
            shares += np.maximum(0.0, np.minimum(span.end_s, high) - np.maximum(span.begin_s, low)) / (high - low)
    return {name: np.minimum(1.0, shares) for name, shares in by_name.items()}

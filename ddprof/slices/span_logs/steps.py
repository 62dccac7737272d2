"""Spans -> the steps that all ranks have, and what each rank spent them on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.slices.span_logs.model import BETWEEN, UNNAMED, Run, Span, SpanLog
from ddprof.slices.span_logs.read import STEP
from ddprof.tables import Array

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

"""Parts of a rank's host time, each with the share of its time that it takes in a scenario."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import CAUSE, RankFacts
from ddprof.analyzers.facts.work import free_host, host_work
from ddprof.intervals import Intervals
from ddprof.tables import Array

LEVELS = 40  # shares told apart per unit

Scaled = tuple[tuple[Intervals, float], ...]


def running(facts: RankFacts) -> Intervals:
    """When the training thread is on a core: operators, Python between them, garbage collection."""
    collecting = facts.host_spans["cause"] == CAUSE["gc"]
    parts = (host_work(facts), free_host(facts))
    start = np.concatenate([p[0] for p in parts] + [facts.host_spans["start_ns"][collecting]])
    end = np.concatenate([p[1] for p in parts] + [facts.host_spans["end_ns"][collecting]])
    return intervals.union(start, end)


def by_level(spans: Intervals, factor: Array) -> Scaled:
    """Spans of about one factor together; those that stay as they are left out."""
    level = np.rint(factor * LEVELS)
    return tuple(
        ((spans[0][level == value], spans[1][level == value]), float(value / LEVELS))
        for value in np.unique(level)
        if value != LEVELS
    )


def on_top(scaled: Scaled, more: Scaled) -> Scaled:
    """Both: what is scaled by b and by c takes b x c of its time. The parts of the result are disjoint."""
    parts: list[tuple[Intervals, float]] = []
    for spans, factor in (*scaled, *more):
        rest = intervals.union(*spans)
        split: list[tuple[Intervals, float]] = []
        for known, share in parts:
            both = intervals.intersect(known, rest)
            split += [(both, share * factor), (intervals.subtract(known, rest), share)]
            rest = intervals.subtract(rest, known)
        parts = _joined([*split, (rest, factor)])
    return tuple(parts)


def _joined(parts: list[tuple[Intervals, float]]) -> list[tuple[Intervals, float]]:
    """Parts of the same share as one."""
    alike: dict[float, list[Intervals]] = defaultdict(list)
    for spans, share in parts:
        if len(spans[0]):
            alike[round(share, 4)].append(spans)
    return [
        (intervals.union(np.concatenate([s for s, _ in spans]), np.concatenate([e for _, e in spans])), share)
        for share, spans in alike.items()
    ]

"""Whose a time is that was measured on each rank: a time that few ranks alone have is theirs, whatever it is called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Candidate
from ddprof.tables import Array
from ddprof.units import format_ranks

FEW_SHARE = 0.25  # of the time of the rank that has most: a rank with less has no part in it


def having(times: Array) -> Array:
    """Positions of the ranks that have a part in a time (of each rank, shape (ranks,))."""
    return np.flatnonzero(times > FEW_SHARE * times.max(initial=0.0))


def whose(times: Array) -> Array:
    """Positions of the ranks that alone have a time; empty where more than half of the ranks have it, or nobody."""
    found = having(times)
    return found if len(found) <= len(times) / 2 else found[:0]


def as_theirs(candidate: Candidate, measures: Measures) -> Candidate:
    """A finding on the whole job whose time few ranks alone have, as a finding on these; any other as it is."""
    positions = whose(np.array(candidate.times_us))
    if candidate.ranks or not len(positions):
        return candidate
    numbers = measures.ranks(positions)
    changes = tuple(change if change.ranks else replace(change, ranks=numbers) for change in candidate.changes)
    summary = f"{candidate.summary}; {format_ranks(numbers)} alone spends time on it"
    return replace(candidate, ranks=numbers, changes=changes, summary=summary)

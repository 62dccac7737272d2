"""Python inside the phases of a CPU rank that is no part of calling operators: it holds one place of most steps."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.host_time import between_operators
from ddprof.analyzers.job.starved import DEAREST_LAUNCH_NS
from ddprof.intervals import Intervals

MOST_SHARE = 0.5  # of the steps: what stops a thread (its core is taken) comes anywhere, a line of the script again


def held_again(facts: RankFacts) -> Intervals:
    """Stretches between operators that are longer than calling one takes, and lie between the same two operators in
    most steps."""
    ops = facts.host_operators
    start, end = between_operators(facts)
    step = np.searchsorted(facts.steps["start_ns"], start, side="right") - 1
    keep = (end - start >= DEAREST_LAUNCH_NS) & (step >= 0) & (start < np.append(facts.steps["end_ns"], 0)[step])
    start, end, step = start[keep], end[keep], step[keep]
    ended = ops["start_ns"] + ops["dur_ns"]
    order = np.argsort(ended, kind="stable")
    before = np.searchsorted(ended[order], start, side="right") - 1
    after = np.searchsorted(ops["start_ns"], end)
    known = (before >= 0) & (after < len(ops))
    start, end, step = start[known], end[known], step[known]
    names = ops["name"].astype(np.int64)
    place = (names[order[before[known]]] << 32) + names[after[known]]
    _, which = np.unique(place, return_inverse=True)
    steps = len(facts.steps)
    seen = np.unique(which * steps + step) // max(1, steps)
    is_again = np.bincount(seen) > MOST_SHARE * steps
    return start[is_again[which]], end[is_again[which]]

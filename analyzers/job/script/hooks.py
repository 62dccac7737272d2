"""Cost of communication hooks' Python on a rank, from their ranges, without the communication they start."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.comm_hooks import hook_name
from ddprof.analyzers.facts.script.host_time import blocked, computes
from ddprof.intervals import Intervals


def in_hooks(facts: RankFacts) -> Intervals:
    """Intervals of the host in hooks outside calls of and waits in collectives; on the rank's own clock."""
    calls = facts.comms["launch_ns"], facts.comms["launch_end_ns"]  # both are missing, and equal, where there was none
    return intervals.subtract(intervals.union(*facts.comm_hooks.bounds), intervals.merge(calls, blocked(facts)))


def held_by_hooks_us(facts: RankFacts) -> float:
    """Time that a rank loses to hooks per step: on a CPU rank all, else that in which the device idles for launches."""
    if not len(facts.comm_hooks):
        return 0.0
    held = in_hooks(facts)
    if not computes(facts):
        held = intervals.intersect(held, facts.gaps_of("host_launch").bounds)
    return facts.per_step_us(held)


def longest_hook(facts: RankFacts) -> str:
    """The function that most of the time is spent in, as people write it."""
    hooks = facts.comm_hooks
    names, which = np.unique(hooks["name"], return_inverse=True)
    spent = np.bincount(which, weights=hooks["end_ns"] - hooks["start_ns"])
    return hook_name(facts, int(names[np.argmax(spent)]))

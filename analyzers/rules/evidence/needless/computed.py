"""What the script computes on values that it gathers without need, in the same call of its loop: a metric over them."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.script.operators import call_of
from ddprof.analyzers.facts.script.tree import CallTree
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.needless import METRICS
from ddprof.analyzers.rules.evidence.needless.lines import called_at
from ddprof.tables import Array


def on_gathered(measures: Measures, position: int) -> Array:
    """Stacks of a rank in the calls of its loop that gather values which no pass needs; bool, shape (stacks,)."""
    facts = measures.job.ranks[position]
    tree = CallTree(facts.script_stacks, facts.script_frames)
    if METRICS not in measures.needless or not len(tree):
        return np.zeros(len(tree), bool)
    lines = {line.partition(", in ")[0] for line in called_at(measures, METRICS, position)}
    named = np.array([tree.words(frame) in lines for frame in range(len(tree.frames))], bool)
    called = call_of(tree)
    calls = np.unique(called[named[tree.frame] & (called >= 0)])
    return np.asarray(np.isin(called, calls))


def share_on_gathered(measures: Measures, position: int) -> float:
    """The share of a rank's time in Python of its script (`Measures.script`) that is in them."""
    own_ns = measures.script[position].stack_ns
    total = float(own_ns.sum())
    return float(own_ns[on_gathered(measures, position)].sum()) / total if total else 0.0

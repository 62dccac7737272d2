"""Operators of CPU ranks that a loop of the script calls one by one where one call for all would do."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.gradients import is_gradient
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.names import ENGINE, matches
from ddprof.analyzers.facts.script.host_time import computes
from ddprof.derived_once import remembered
from ddprof.intervals import EMPTY, Intervals
from ddprof.tables import Array, distinct

LEAST_CALLS = 60  # of an operator with equal shapes in a step; micro-batches of a few layers make some dozen
LONGEST_US = 100.0  # of such a call on average: five operators of 20 us, each of which is mostly its call
_BACKWARD = re.compile(rf"^{ENGINE}|Backward\d*$")
PYTHON_NS = 1_000_000  # between two operators; longer is Python of the script (facts/cpu/rank.py)


@remembered
def looped_operators(facts: RankFacts) -> Array:
    """Mask of operators that are called more often in a step, with equal shapes, than the model has parameters, and
    are short; shape (host_operators,). Layers that follow one another call none as often: each has parameters. Nodes
    of the backward pass count where the forward pass calls so too: an operator may loop inside, as a GRU does.
    """
    ops = facts.host_operators
    if not len(ops) or not computes(facts):
        return np.zeros(len(ops), bool)
    start, stepping = ops["start_ns"], facts.phase_time(Phase.OPTIMIZER)
    counted = facts.is_issued_in_steps(start) & ~intervals.contains(stepping, start)
    _, which = distinct(ops["name"], ops["shape"])
    calls = np.bincount(which, weights=counted) / len(facts.steps)
    mean_us = np.bincount(which, weights=ops["dur_ns"] * counted) / 1e3 / np.maximum(calls * len(facts.steps), 1.0)
    gradients = float((is_gradient(facts.strings)[ops["name"]] & counted).sum()) / len(facts.steps)
    often = (calls >= LEAST_CALLS) & (calls > gradients) & (gradients > 0) & (mean_us <= LONGEST_US)
    looped = often[which] & counted
    return np.asarray(looped & bool((looped & ~is_backward(facts.strings)[ops["name"]]).any()))


def is_backward(strings: Sequence[str]) -> Array:
    """Mask of the strings that name a node of the backward pass, by its class; shape (strings,)."""
    return matches(_BACKWARD, strings)


def in_loops(facts: RankFacts) -> Intervals:
    """Intervals of such operators, with the Python between them."""
    rows = np.flatnonzero(looped_operators(facts))
    if not len(rows):
        return EMPTY
    start = facts.host_operators["start_ns"][rows]
    end = start + facts.host_operators["dur_ns"][rows]
    until = np.append(start[1:], end[-1])
    follows = np.append(np.diff(rows) == 1, False) & (until - end < PYTHON_NS)
    return intervals.union(start, np.where(follows, np.maximum(until, end), end))

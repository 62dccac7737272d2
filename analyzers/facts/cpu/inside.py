"""Python inside an operator of a CPU rank: a hook of the backward pass, a function of autograd that is the script's.

What computes is called through the dispatcher and named "library::operator". A node of autograd only calls such
operators: what it takes by itself is the engine's few microseconds, or Python. A compiled region computes by itself.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.names import matches
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace

_NODE = re.compile(
    r"^(?:autograd::engine::evaluate_function: )?(?:torch::autograd::)?"
    r"(?!.*(?:Compiled|Inductor|Dynamo|Triton))[A-Za-z_]\w*$"
)
# An eager operator costs its host 5 to 20 us, some hundred us while stacks are recorded (as job/starved.py).
LEAST_NS = 1_000_000


def python_inside(trace: RankTrace, thread: int) -> Intervals:
    """When the innermost operator of a thread is a node of autograd for longer than calling the next one takes."""
    events = trace.events
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["track"] == thread) & (events["dur_ns"] > 0))
    rows = rows[np.lexsort((-events["dur_ns"][rows], events["ts_ns"][rows]))]
    is_node = matches(_NODE, trace.strings)[events["name"][rows]]
    if not is_node.any():
        return intervals.EMPTY
    begun = events["ts_ns"][rows]
    ended, parent, _ = intervals.nested(begun, begun + events["dur_ns"][rows])
    start, end, row = intervals.innermost(begun, ended, parent)
    is_node[np.setdiff1d(np.arange(len(rows)), parent)] = False  # which calls nothing may compute itself
    keep = is_node[row] & (end - start >= LEAST_NS)
    return start[keep], end[keep]

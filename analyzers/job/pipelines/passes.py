"""Forward and backward passes of a pipeline stage: compute that its host launches between two messages.

Messages bound a pass, and autograd launches the backward pass on a thread of its own. Both bounds survive lost records,
so that passes can be counted where messages cannot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.work import computed_in_steps, launched_in
from ddprof.tables import NULL, Array

# Of the median pass: what takes less is no pass (zeroing gradients, clipping, copies of received tensors).
LEAST_PASS = 0.1


@dataclass(frozen=True)
class Passes:
    """Passes of one rank in the order of their launch; parallel arrays. `knows_backward`: two threads launch them.

    `of_op`, shape (device_ops,): the pass of each device operation, -1 for none.
    """

    step: Array
    is_forward: Array  # bool; True of all where `knows_backward` is False
    busy_ns: Array  # time of their kernels
    knows_backward: bool
    of_op: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def per_step(self, is_forward: bool, steps: int) -> Array:
        """Forward (or backward) passes per step."""
        return np.bincount(self.step[self.is_forward == is_forward], minlength=steps)


NO_PASSES = Passes(np.empty(0, np.int64), np.empty(0, bool), np.empty(0, np.int64), False)


def passes_of(facts: RankFacts) -> Passes:
    """The passes of a device rank; none of CPU ranks, whose facts do not separate operators."""
    ops = facts.device_ops
    if not len(ops):
        return NO_PASSES
    rows, step = computed_in_steps(facts)
    kept = (ops["launch_ns"] != NULL)[rows] & ~launched_in(facts, Phase.OPTIMIZER)[rows]
    order = np.flatnonzero(kept)[np.argsort(ops["launch_ns"][rows[kept]], kind="stable")]
    rows, step = rows[order], step[order]
    if not len(rows):
        return NO_PASSES
    sent = facts.comms["launch_ns"][np.unique(facts.messages["comm"])]
    after = np.searchsorted(np.sort(sent[sent != NULL]), ops["launch_ns"][rows])
    thread = ops["thread"][rows]
    forward_thread = facts.main_thread if facts.main_thread in thread else thread[0]
    bounds = np.stack((step, after, thread == forward_thread))
    starts = np.flatnonzero(np.concatenate(([True], (bounds[:, 1:] != bounds[:, :-1]).any(axis=0))))
    busy = np.add.reduceat((ops["end_ns"] - ops["start_ns"])[rows], starts)
    kept = busy >= LEAST_PASS * np.median(busy[busy >= LEAST_PASS * busy.max()])
    of_op = np.full(len(ops), -1)
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    of_op[rows] = np.repeat(number, np.diff(np.append(starts, len(rows))))
    starts, busy = starts[kept], busy[kept]
    is_forward = bounds[2, starts].astype(bool)
    return Passes(step[starts], is_forward, busy, not is_forward.all(), of_op)

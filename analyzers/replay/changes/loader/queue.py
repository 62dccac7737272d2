"""The data loader as torch runs it: W workers take batches in turn, deliver in order, and hold W x prefetch at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.tables import Array

STEPS = 400  # simulated
SETTLED = 100  # simulated steps before the queue is in its steady state: left out of the mean
SEED = 20_240_229


def queued_step_ns(
    step_ns: float,
    costs: Sequence[Array],
    workers: int,
    prefetch: int,
    busy_ns: Array,
    turns_ns: Array | None = None,
) -> float:
    """Mean job step in the steady state.

    `step_ns`: the job's step with every batch ready. `busy_ns`: per rank, what of it is its own work, from its batch to
    where it meets the others; all of them wait for the last. `costs`: per rank, batch times (ns), drawn from in random
    order. `turns_ns`: per rank, what of a batch only one of its workers can do at a time (0: nothing).
    """
    random = np.random.default_rng(SEED)
    drawn = np.stack([random.choice(cost, STEPS) for cost in costs])
    delivered = np.zeros((len(costs), STEPS))
    ready = np.zeros((len(costs), STEPS))
    own = np.minimum(busy_ns, step_ns)
    shared = step_ns - float(own.max())
    turn = np.zeros(len(costs)) if turns_ns is None else turns_ns
    held_until = np.zeros(len(costs))
    now, ends = 0.0, []
    for step in range(STEPS):
        if workers == 0:
            delivered[:, step] = now + drawn[:, step]
        else:
            free = ready[:, step - workers] if step >= workers else drawn[:, step] * (step % workers) / workers
            window = workers * prefetch
            asked = delivered[:, step - window] if step >= window else np.zeros(len(costs))
            own_part = np.maximum(drawn[:, step] - turn, 0.0)
            ready[:, step] = np.maximum(np.maximum(free, asked) + own_part, held_until) + (drawn[:, step] - own_part)
            held_until = np.where(turn > 0, ready[:, step], held_until)
            delivered[:, step] = np.maximum(now, ready[:, step])
        now = float((delivered[:, step] + own).max()) + shared
        ends.append(now)
    return (ends[-1] - ends[SETTLED - 1]) / (STEPS - SETTLED)

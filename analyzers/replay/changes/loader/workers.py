"""The step with other DataLoader workers: the rate at which batches come, and the cores that making them takes.

Applied to the step that the replay predicts for everything else with every batch ready (`instant_loader`), so that it
combines with any other change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.host_spans import PREFETCHED_US
from ddprof.analyzers.replay.changes.loader.fetch_costs import FetchCosts, rank_costs
from ddprof.findings import Change
from ddprof.tables import Array

MAX_RANKS = 64  # queues that are simulated, of the slowest loaders; the others never come last
STEPS = 400  # simulated
SETTLED = 100  # simulated steps before the queue is in its steady state: left out of the mean
SEED = 20_240_229  # the same run gives the same prediction


def loader_workers(change: Change, step_us: float, measures: Measures) -> float:
    """Step with another number of workers, us.

    `values`: new workers and prefetch_factor, the run's workers, cores per host (0: unknown). `step_us`: the step with
    every batch ready. While a lock bounds the step, it stays as measured.
    """
    workers, prefetch, now, cores = (int(v) for v in change.values)
    timed = [(p, cost) for p, cost in enumerate(rank_costs(measures, now)) if cost is not None]
    if not timed:
        return step_us
    slowest = sorted(timed, key=lambda item: -item[1].mean_ns)[:MAX_RANKS]
    busy_ns = own_work_us(measures) * 1e3
    # A rank without a known loader may still be the one with most work: it meets the others with its batch ready.
    costs = [_batch_ns(cost) for _, cost in slowest] + [np.zeros(1)]
    work_ns = np.append(busy_ns[[p for p, _ in slowest]], busy_ns.max())
    turns = np.array([*(cost.turn_ns for _, cost in slowest), 0.0])
    queued_us = queued_step_ns(step_us * 1e3, costs, workers, max(1, prefetch), work_ns, turns) / 1e3
    if workers and not now and cores and _most_on_a_host(measures) >= cores:  # no core is free to hand batches over
        queued_us += execution_of(measures.job).limits.handover_us
    if workers and turns.max() / 1e3 > step_us:
        queued_us = max(queued_us, measures.step_us)
    return max(queued_us, cores_bound_us(measures, [cost for _, cost in timed], cores, step_us))


def own_work_us(measures: Measures) -> Array:
    """Time of each rank that is neither communication nor waiting for batches, us per step."""
    total: Array = measures.ledger_us.sum(axis=1)
    idle = measures.cause_us("comm_wait") + measures.cause_us("dataloader") + measures.cause_us("comm_transfer")
    work: Array = np.maximum(total - idle, 0.0)
    return work


def _batch_ns(costs: FetchCosts) -> Array:
    """Times to make a batch; for the training thread's own batches without the time to take a ready one."""
    inline = costs.source == "inline"
    return np.maximum(costs.cost_ns - (PREFETCHED_US * 1e3 if inline else 0.0), 0.0)


def _most_on_a_host(measures: Measures) -> int:
    hosts = [f.identity.host for f in measures.job.ranks]
    return max(hosts.count(h) for h in set(hosts))


def cores_bound_us(measures: Measures, costs: list[FetchCosts], cores: int, step_us: float) -> float:
    """Least step that the host's cores allow, as training and loading share them, us.

    `step_us`: the step with every batch ready, in which ranks train on their share of the cores (longer operators
    waited for one). 0 where the cores or the loader's CPU share are unknown.
    """
    cpu_ns = [c.mean_ns * c.cpu_share for c in costs if c.cpu_share is not None]
    if not cores or not cpu_ns:
        return 0.0
    compute_us = float(np.mean(measures.cause_us("compute") + measures.cause_us("comm_transfer")))
    training_us = execution_of(measures.job).limits.training_cores * compute_us
    ranks = _most_on_a_host(measures)
    training_us = min(training_us, step_us * min(1.0, cores / ranks))
    return ranks * (float(np.mean(cpu_ns)) / 1e3 + training_us) / cores


def queued_step_ns(
    step_ns: float,
    costs: Sequence[Array],
    workers: int,
    prefetch: int,
    busy_ns: Array,
    turns_ns: Array | None = None,
) -> float:
    """Mean job step in the steady state of a loader as torch runs it: its workers take batches in turn, deliver in
    order and hold workers x prefetch at most.

    `step_ns`: the job's step with every batch ready. `busy_ns`: per rank, what of it is its own work, from its batch to
    where it meets the others; all of them wait for the last. `costs`: per rank, batch times (ns), drawn from in random
    order. `turns_ns`: per rank, what of a batch only one of its workers can do at a time (0: nothing).
    """
    random = np.random.default_rng(SEED)
    drawn = np.stack([random.choice(cost, STEPS) for cost in costs])
    delivered = np.zeros((len(costs), STEPS))
    ready = np.zeros((len(costs), STEPS))
    work_ns = np.minimum(busy_ns, step_ns)
    shared = step_ns - float(work_ns.max())
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
        now = float((delivered[:, step] + work_ns).max()) + shared
        ends.append(now)
    return (ends[-1] - ends[SETTLED - 1]) / (STEPS - SETTLED)

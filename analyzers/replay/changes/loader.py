"""The step with other DataLoader workers: the rate at which batches come, and the cores that making them takes.

Applied to the step that the replay predicts for everything else with every batch ready (`instant_loader`), so that it
combines with any other change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import is_fetch_from_workers
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.host_spans import PREFETCHED_US
from ddprof.analyzers.replay.graph.dependencies import BLOCKED_FETCH_NS
from ddprof.findings import Change
from ddprof.sidecar import Sidecar
from ddprof.tables import Array

# Time to make one batch: timed in the loader's workers, in the training thread, or by the arrival of batches.

# Share of the recording spent waiting for batches. Below it the loader keeps up, and the rate of arrivals is the
# consumer's, not the loader's.
STARVED_SHARE = 0.03
CPU_BOUND = 0.7  # of a batch's time on the CPU: more workers help while there are cores
WAITING = 0.4  # below this the batch mostly waits for storage or network: more workers help beyond the cores
COLLATING = 0.5  # of a batch's time in the collate function
SPARE = 0.2  # workers beyond the exact need, so that batches that take longer do not show (ml-engineering)
WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # counts that are tried and advised


class FetchCosts(Struct, frozen=True):
    """Time of one batch on one rank, ns, and its source."""

    cost_ns: Array
    source: str  # "workers" (timed in them) | "inline" (fetched by the training thread) | "arrivals" (their rate)
    cpu_share: float | None = None  # of that time on a core; None where it was not measured
    collate_share: float | None = None  # of that time in putting samples together
    core_share: float | None = None  # of that time on a core or waiting for one, where the rest of the rank did so too
    turn_ns: float = 0.0  # of it, what only one worker can do at a time; 0: nothing shows that there is any

    @property
    def kind(self) -> str | None:
        """Main part of the time, as `batch_kind` names it."""
        return batch_kind(self.core_share, self.collate_share)

    @property
    def mean_ns(self) -> float:
        """Mean time to make a batch."""
        return float(self.cost_ns.mean())


def batch_kind(core_share: float | None, collate_share: float | None) -> str | None:
    """Main part of a batch's time: "collate", "cpu", "wait" or "mixed"; None where CPU time was not recorded."""
    if core_share is None:
        return None
    if collate_share is not None and collate_share >= COLLATING:
        return "collate"
    return "cpu" if core_share >= CPU_BOUND else "wait" if core_share < WAITING else "mixed"


def core_share(facts: RankFacts) -> float | None:
    """Share of a batch's time spent on a core or runnable; None where CPU time was not recorded.

    On a busy machine computing takes longer without taking more CPU time, and would pass for waiting for storage. Where
    workers did not count their waits for a core, a batch is taken to wait as much as the rest of its rank does for what
    that computes.
    """
    timed, run = facts.sidecar.fetching, facts.sidecar.cpu_waits.run
    if timed is None or timed.cpu_share is None:
        return None
    if timed.waited_share is not None:
        return min(1.0, timed.cpu_share + timed.waited_share)
    stretch = run.waited_ns / run.cpu_ns if run is not None and run.cpu_ns else 0.0
    return min(1.0, timed.cpu_share * (1 + stretch))


def needed_workers(batch_us: float, pace_us: float) -> int:
    """Workers to advise for a batch that takes `batch_us` to make: as many as deliver one every `pace_us`, with a fifth
    to spare. `pace_us`: the step with every batch ready, or what else bounds the rate: the cores, a lock.
    """
    exact = batch_us / max(pace_us, 1.0) * (1 + SPARE)
    return next((count for count in WORKERS if count >= exact and count), max(1, math.ceil(exact)))


def rank_costs(measures: Measures, workers_now: int) -> list[FetchCosts | None]:
    """Batch times of every rank, in rank order."""
    return [fetch_costs(facts, workers_now) for facts in measures.job.ranks]


def takes_from_workers(facts: RankFacts) -> bool:
    """True where names of fetches show that worker processes made the batches; traces lack their number."""
    return bool(is_fetch_from_workers(facts.strings)[facts.spans_of("dataloader")["name"]].any())


def fetch_costs(facts: RankFacts, workers: int | None) -> FetchCosts | None:
    """Batch times of one rank; None where they cannot be known.

    `workers`: DataLoader workers of the recorded run. A loader that keeps up does not show the cost of its batches
    unless its workers were timed.
    """
    timed = facts.sidecar.fetching
    if timed is not None and timed.fetch_ns:
        cost_ns = np.array(timed.fetch_quantiles_ns or [timed.fetch_ns], float)
        turn_ns = float(timed.turn_ns or 0)
        if turn_ns:
            # The others' turns are part of what was timed. The shortest fetches waited for nobody.
            cost_ns = np.array([max(float(cost_ns.min()), turn_ns)])
        source = "workers" if timed.workers else "inline"
        return FetchCosts(cost_ns, source, timed.cpu_share, timed.collate_share, core_share(facts), turn_ns)
    start, end = intervals.union(*facts.spans_of("dataloader").bounds)
    if not len(start) or workers is None:
        return None
    if workers == 0:
        return FetchCosts((end - start).astype(float), "inline")
    waited = np.maximum(end - start - BLOCKED_FETCH_NS, 0)
    if len(end) < 2 or float(waited.sum()) < STARVED_SHARE * float(end[-1] - start[0]):
        return None
    # Starved, the consumer takes batches as they come: W workers deliver W batches in the time that one takes.
    return FetchCosts(np.array([float(end[-1] - end[0]) / (len(end) - 1) * workers]), "arrivals")


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
    passes = [n for p, _ in slowest if (n := steps_per_pass(measures.job.ranks[p].sidecar))]
    each_pass = min(passes, default=STEPS)
    queued_us = queued_step_ns(step_us * 1e3, costs, workers, max(1, prefetch), work_ns, turns, each_pass) / 1e3
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


def steps_per_pass(sidecar: Sidecar) -> int:
    """Steps of a pass over the loader: its length, unless passes end before, as with a `break`. 0 where unknown."""
    length, passes, steps = sidecar.loader.batches_per_epoch or 0, sidecar.loader_passes or 0, sidecar.steps_total or 0
    is_whole = not passes or (passes - 1) * length < steps <= passes * length
    return length if is_whole else round(steps / passes)


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
    each_pass: int = STEPS,
) -> float:
    """Mean job step in the steady state of a loader as torch runs it: its workers take batches in turn, deliver in
    order and hold workers x prefetch at most.

    `step_ns`: the job's step with every batch ready. `busy_ns`: per rank, what of it is its own work, from its batch to
    where it meets the others; all of them wait for the last. `costs`: per rank, batch times (ns), drawn from in random
    order. `turns_ns`: per rank, what of a batch only one of its workers can do at a time (0: nothing). `each_pass`:
    steps of a pass over the data; a loader prefetches nothing of the next one.
    """
    random = np.random.default_rng(SEED)
    drawn = np.stack([random.choice(cost, STEPS) for cost in costs])
    delivered = np.zeros((len(costs), STEPS))
    ready = np.zeros((len(costs), STEPS))
    work_ns = np.minimum(busy_ns, step_ns)
    shared = step_ns - float(work_ns.max())
    turn = np.zeros(len(costs)) if turns_ns is None else turns_ns
    held_until = np.zeros(len(costs))
    now, begun, ends = 0.0, 0.0, []
    for step in range(STEPS):
        begun = begun if step % each_pass else now
        if workers == 0:
            delivered[:, step] = now + drawn[:, step]
        else:
            free = ready[:, step - workers] if step >= workers else drawn[:, step] * (step % workers) / workers
            window = workers * prefetch
            asked = delivered[:, step - window] if step >= window else np.zeros(len(costs))
            own_part = np.maximum(drawn[:, step] - turn, 0.0)
            first = np.maximum.reduce([free, asked, np.full(len(costs), begun)])
            ready[:, step] = np.maximum(first + own_part, held_until) + (drawn[:, step] - own_part)
            held_until = np.where(turn > 0, ready[:, step], held_until)
            delivered[:, step] = np.maximum(now, ready[:, step])
        now = float((delivered[:, step] + work_ns).max()) + shared
        ends.append(now)
    return (ends[-1] - ends[SETTLED - 1]) / (STEPS - SETTLED)


# Advised number of loader workers, the same for finding, planner and what-if.


class Demand(Struct, frozen=True):
    """Workers that deliver a batch as fast as they are wanted or can; `limit`: what keeps them from one per step
    ("cores", "turns", "processes": more of them than is reasonable), "" where nothing does.
    """

    workers: int
    limit: str


def busy_step_us(measures: Measures) -> float:
    """The step without waits for batches or for peers that wait for theirs, on the busiest rank."""
    waited = measures.cause_us("dataloader") + measures.cause_us("comm_wait")
    return float((measures.ledger_us.sum(axis=1) - waited).max())


def demand(measures: Measures, busy_us: float, had: int, cores: int, position: int | None = None) -> Demand | None:
    """Workers for the loader of a rank (None: the slowest); None where a batch's cost is not known.

    `busy_us`: the step with every batch ready. `had`: workers of the run. `cores` of a host; 0: unknown. A fetch that
    waits needs no core: cores bound those that compute, nothing but sense the others. There the bound is the largest
    count that is tried (WORKERS): each worker is a process with its own interpreter and copy of the data set.
    """
    every = rank_costs(measures, had)
    costs = [cost for cost in every if cost is not None]
    # Turns first: they are what no number of workers shortens, and the other ranks wait for that rank's batches.
    slowest = max(costs, key=lambda cost: (cost.turn_ns, cost.mean_ns), default=None)
    cost = slowest if position is None else every[position]
    if cost is None:
        return None
    bounds_us = {"": busy_us, "turns": cost.turn_ns / 1e3}
    if cost.kind != "wait":
        bounds_us["cores"] = cores_bound_us(measures, costs, cores, busy_us)
    limit = max(bounds_us, key=lambda name: bounds_us[name])
    batch_us = cost.mean_ns / 1e3
    if limit and had * bounds_us[limit] >= batch_us:
        return Demand(had, limit)  # they are as fast as the limit allows
    wanted = needed_workers(batch_us, bounds_us[limit])
    most = max(WORKERS[-1], had)
    return Demand(min(wanted, most), "processes" if wanted > most else limit)

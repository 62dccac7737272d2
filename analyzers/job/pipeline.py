"""Pipelines found in the point-to-point traffic, and the wait their schedule makes unavoidable.

The bubble of GPipe and 1F1B is (p - 1) slots of one microbatch's forward + backward, (p - 1) / m of the ideal compute
time; interleaving v chunks divides it by v (Megatron-LM section 2.2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import early_comms
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import issued_ns, stage_work
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.model import Pipeline
from ddprof.tables import Array


def find_pipeline(ranks: Sequence[RankFacts], matched: Matched) -> Pipeline | None:
    """The pipeline(s) of the job with their stages in rank order; None without regular point-to-point traffic."""
    traffic = _traffic(matched)
    chains = _chains(traffic)
    if not chains:
        return None
    depth = max(len(c) for c in chains)
    chains = [c for c in chains if len(c) == depth]
    stages = tuple(tuple(chain[s] for chain in chains) for s in range(depth))
    steps = max(1, min(len(ranks[p].steps) for c in chains for p in c))
    first = chains[0]
    recorded = _traffic(matched, _launched_in_steps(ranks, matched))
    traffic = recorded if recorded[first[0], first[1]] else traffic
    forward = traffic[first[0], first[1]] / steps
    backward_wrap = traffic[first[-1], first[0]] / steps if depth > 2 else 0.0
    microbatches = max(1, round(forward - backward_wrap))
    return Pipeline(stages, microbatches, max(1, round(forward / microbatches)))


def _traffic(matched: Matched, counted: Array | None = None) -> Counter[tuple[int, int]]:
    """Messages per (sender position, receiver position).

    A message counts if both sides were traced, and `counted`, bool of shape (members,), is true of both.
    """
    traffic: Counter[tuple[int, int]] = Counter()
    is_message = matched.is_message[matched.instance]
    rows = np.flatnonzero(is_message if counted is None else is_message & counted)
    order = rows[np.argsort(matched.instance[rows], kind="stable")]
    instance = matched.instance[order]
    both = np.flatnonzero(instance[1:] == instance[:-1])
    for first, second in zip(order[both].tolist(), order[both + 1].tolist(), strict=True):
        sender, receiver = (first, second) if matched.side[first] else (second, first)
        traffic[int(matched.rank[sender]), int(matched.rank[receiver])] += 1
    return traffic


def _launched_in_steps(ranks: Sequence[RankFacts], matched: Matched) -> Array:
    """Which members were launched (where unknown: started) inside the steps; bool, shape (members,)."""
    inside = np.zeros(len(matched.rank), bool)
    for position, facts in enumerate(ranks):
        mine = np.flatnonzero(matched.rank == position)
        if not len(facts.steps) or not len(mine):
            continue
        comm = matched.comm[mine]
        early, when = early_comms(facts.comms, facts.device_ops)[comm], issued_ns(facts.comms)[comm]
        inside[mine] = ~early & facts.is_issued_in_steps(when)
    return inside


def _chains(traffic: Counter[tuple[int, int]]) -> list[list[int]]:
    neighbours: dict[int, set[int]] = defaultdict(set)
    for a, b in traffic:
        neighbours[a].add(b)
        neighbours[b].add(a)
    chains, seen = [], set()
    for start in sorted(neighbours):
        if start in seen:
            continue
        component, queue = {start}, [start]
        while queue:
            for other in neighbours[queue.pop()] - component:
                component.add(other)
                queue.append(other)
        seen |= component
        chains.append(sorted(component))
    return chains


def stage_work_ns(facts: RankFacts) -> float:
    """Forward and backward compute per step, ns; 0 without steps."""
    if not len(facts.steps):
        return 0.0
    inside = intervals.overlap(stage_work(facts), facts.steps["start_ns"], facts.steps["end_ns"])
    return float(inside.sum()) / len(facts.steps)


def bubble_allowance(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Array:
    """Unavoidable wait per step and rank, ns, shape (ranks,): (p - 1) / (m v) of the mean stage's work."""
    allowance = np.zeros(len(ranks), np.int64)
    if pipeline is None:
        return allowance
    for chain in zip(*pipeline.stages, strict=True):
        mean = float(np.mean([stage_work_ns(ranks[p]) for p in chain]))
        share = (len(chain) - 1) / (pipeline.microbatches * pipeline.interleave)
        for p in chain:
            allowance[p] = round(mean * share)
    return allowance

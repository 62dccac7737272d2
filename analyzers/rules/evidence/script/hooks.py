"""A Python communication hook that delays the backward pass."""

from __future__ import annotations

import numpy as np

from ddprof import averages
from ddprof.analyzers.job.host_costs import held_by_hooks_us, longest_hook
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.spans import at
from ddprof.findings import Basis, Candidate, Change, Evidence, Fix
from ddprof.units import format_share, format_us


def slow_hook(measures: Measures, rule_id: str, least: float) -> Candidate | None:
    """Finding where hooks take at least `least` of the typical rank's step; None where they do not."""
    job = measures.job
    held_us = np.array([held_by_hooks_us(facts) for facts in job.ranks])
    if not len(held_us) or averages.typical(held_us) < max(least * measures.step_us, np.finfo(float).tiny):
        return None
    worst = int(np.argmax(held_us))
    facts = job.ranks[worst]
    hooks, words, rank = facts.comm_hooks, longest_hook(facts), job.rank_ids[worst]
    length = hooks["end_ns"] - hooks["start_ns"]
    longest = int(np.argmax(length))
    per_step = len(hooks) / len(facts.steps)
    cost_us = float(held_us.mean())
    start, end = int(hooks["start_ns"][longest]), int(hooks["end_ns"][longest])
    return Candidate(
        id=rule_id,
        summary=f"a Python communication hook delays the backward pass by {format_share(cost_us / measures.step_us)}"
        f" of each step, in {words}",
        lost_us=cost_us,
        changes=(Change("no_hook"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(
                f"{words}: {per_step:.0f} calls per step, {format_us(float(np.median(length)) / 1e3)} each; without "
                f"the communication that they start {format_us(float(held_us[worst]))} per step",
                rank,
            ),
            at(measures, worst, start, end, f"longest call: {format_us((end - start) / 1e3)}", words),
        ),
        fixes=(
            Fix(
                setting=words,
                current="Python for each bucket of gradients, inside the backward pass",
                suggested="a few operators on `bucket.buffer()` that start the communication; the rest once per step, "
                "or every N steps, after the optimizer",
                patch="return dist.all_reduce(bucket.buffer(), async_op=True).get_future()  # and nothing that loops",
                why="the backward pass goes on, and other buckets are sent, only when the hook returns",
                source="torch.nn.parallel.DistributedDataParallel.register_comm_hook documentation",
            ),
        ),
        ceiling_us=float(held_us.max()),
    )

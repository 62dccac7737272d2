"""A finding on operators that a loop of CPU ranks calls one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import averages
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.host_parts import LOOPED, part_us
from ddprof.analyzers.job.looped import is_backward, looped_operators
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.beside import line_of_operators
from ddprof.analyzers.job.speedups import LOOPED_SHARE
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix
from ddprof.units import format_share, format_us
from ddprof.whose import whose

MIN_SHARE = 0.03  # of the step; what would be saved of less is below what is told
EITHER_WAY = 1 / 3  # of the gain: what is left depends on the work of the operators, which their shapes do not say


def called_one_by_one(measures: Measures, rule_id: str) -> Iterator[Candidate | Abstention]:
    """The finding where the typical CPU rank spends a part of its steps in such operators."""
    ranks = measures.job.ranks
    if not any(len(facts.host_operators) for facts in ranks):
        yield Abstention(rule_id, "a CPU run launches nothing, and its operators were not recorded")
        return
    times_us = np.array([part_us(facts, LOOPED) for facts in ranks])
    typical_us = averages.typical(times_us)
    if typical_us < MIN_SHARE * measures.step_us or len(whose(times_us)):
        return
    worst = int(np.argmax(times_us))
    (looped, hottest, calls), share = _looped(ranks[worst]), format_share(typical_us / measures.step_us)
    where = line_of_operators(ranks, hottest)
    yield Candidate(
        id=rule_id,
        summary=f"a loop calls {looped} short operators per step one by one"
        + (f", mostly at {where}" if where else ""),
        lost_us=typical_us * (1 - LOOPED_SHARE),
        changes=(Change("scale_part", (), (LOOPED_SHARE,), LOOPED),),
        basis=Basis.DEDUCED,
        evidence=(
            Evidence(f"they and the Python between them take {format_us(typical_us)} per step ({share})"),
            Evidence(calls, measures.job.rank_ids[worst]),
        ),
        fixes=(
            Fix(
                setting=f"loop at {where}" if where else "the loop",
                current="one call for each element",
                suggested="one call for the whole batch or sequence (nn.LSTM for a cell, a batched loss, torch.vmap)",
                why="a short operator is mostly its call, which one call for all makes once",
                source="PyTorch performance tuning guide",
            ),
        ),
        band=EITHER_WAY,
        times_us=tuple(times_us.tolist()),
    )


def _looped(facts: RankFacts) -> tuple[int, str, str]:
    """Calls of a rank's looped operators per step; the one beside the backward pass that takes longest, by its name and
    in words."""
    ops, steps = facts.host_operators.take(np.flatnonzero(looped_operators(facts))), len(facts.steps)
    names, which, calls = np.unique(ops["name"], return_inverse=True, return_counts=True)
    spent_ns = np.bincount(which, weights=ops["dur_ns"])
    at = int(np.argmax(spent_ns * ~is_backward(facts.strings)[names]))
    name, each_us = facts.strings[names[at]], float(spent_ns[at] / calls[at] / 1e3)
    return (
        len(ops) // steps,
        name,
        f"{name} is called {int(calls[at]) // steps} times per step, {format_us(each_us)} each",
    )

"""Candidates for avoidable communication, each under the rule of its cost: latency or bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.script.operators import call_of
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.redundant.cost import needless_us
from ddprof.analyzers.job.traffic.redundant import ACCUMULATION, BUFFERS, METRICS, NORMS, PARAMETERS, UNUSED
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.analyzers.rules.evidence.exposures import TINY_BYTES
from ddprof.analyzers.rules.evidence.redundant import fixes
from ddprof.analyzers.rules.evidence.redundant.lines import called_at
from ddprof.findings import Basis, Candidate, Change, Evidence, Fix
from ddprof.tables import Array
from ddprof.units import format_bytes, format_share, format_us

MIN_SHARE = 0.01  # of the step in it, mean over ranks; that of comm.barrier


@dataclass(frozen=True)
class Avoidable:
    """One kind of avoidable communication. `where`: the line that calls it, after a comma; "" if unknown."""

    traffic: tuple[Traffic, ...]
    number: int  # as in Needless
    where: str

    @property
    def calls(self) -> float:
        """Calls per step, mean over ranks."""
        return sum(traffic.count for traffic in self.traffic)

    @property
    def size_bytes(self) -> float:
        """Bytes per rank and step."""
        return sum(traffic.total_bytes for traffic in self.traffic)

    def of_bytes(self, calls: float = 1.0, how: str = " in all") -> str:
        """The size in words; "" where sizes were not recorded."""
        return f" of {format_bytes(self.size_bytes / max(1.0, calls))}{how}" if self.size_bytes else ""

    @property
    def op(self) -> str:
        """The most frequent operation."""
        return max(self.traffic, key=lambda traffic: traffic.count).op


def could_go(measures: Measures, rule_id: str, is_volume: bool) -> Iterator[Candidate]:
    """Candidates for avoidable communication that costs by its bytes (`is_volume`), or by its number of calls."""
    for kind in measures.needless:
        traffic = tuple(t for t in measures.comm.traffic if t.needless == kind)
        if not traffic or (kind == ACCUMULATION or _is_large(traffic)) != is_volume:
            continue
        held_us = needless_us(measures.job, measures.needless[kind], waits=True)
        # A setting that serves nothing is worth a word however little it costs.
        if kind == UNUSED or held_us.mean() >= MIN_SHARE * measures.step_us:
            yield _candidate(measures, rule_id, kind, traffic, held_us)


def _is_large(traffic: tuple[Traffic, ...]) -> bool:
    return sum(t.total_bytes for t in traffic) >= TINY_BYTES * sum(t.count for t in traffic)


def _candidate(
    measures: Measures, rule_id: str, kind: str, traffic: tuple[Traffic, ...], held_us: np.ndarray
) -> Candidate:
    worst = int(np.argmax(held_us))
    lines = called_at(measures, kind, worst)
    avoidable = Avoidable(traffic, measures.needless[kind].number, f", at {lines[0]}" if lines else "")
    cost_us, transfer_us = float(held_us.mean()), sum(t.transfer_us for t in traffic)
    evidence = Evidence(
        f"{avoidable.calls:.0f} {avoidable.op} calls per step{avoidable.of_bytes(avoidable.calls, ' each')} could go, "
        f"{format_us(transfer_us)} of transfer; with waits they hold the ranks for "
        f"{format_us(cost_us)} per step ({format_share(cost_us / measures.step_us)})"
    )
    summary, fix = _WORDS[kind]
    changes: tuple[Change, ...] = (Change("drop_needless", (), (), kind),)
    more_us = 0.0
    if kind == METRICS and (part := _of_the_others(measures, worst)) > 0:
        # Of what is computed on the values of all ranks, each rank's own part is left.
        changes, more_us = (
            (*changes, Change("no_script", values=(1.0 - part,))),
            part * float(measures.script_us[worst]),
        )
    return Candidate(
        id=rule_id,
        summary=summary(measures, avoidable),
        lost_us=cost_us + more_us,
        changes=changes,
        basis=Basis.RECORDED,
        evidence=(
            evidence,
            *_more(measures, kind),
            *(Evidence(f"called at {line}", measures.job.rank_ids[worst]) for line in lines),
        ),
        fixes=(fix(measures, avoidable.number),),
        ceiling_us=float(held_us.max()) + more_us,
    )


def _of_the_others(measures: Measures, position: int) -> float:
    """Share of a rank's script time spent on values gathered from other ranks."""
    ranks = len(measures.job.ranks)
    return share_on_gathered(measures, position) * (ranks - 1) / ranks


def _more(measures: Measures, kind: str) -> Iterator[Evidence]:
    """Further evidence on a kind of avoidable communication."""
    largest = measures.settings.ddp.buffers
    if kind == BUFFERS and largest.largest:
        yield Evidence(f"the largest buffer is '{largest.largest}', {format_bytes(largest.largest_bytes)}")
    if kind == UNUSED:
        yield Evidence("each pass searches the graph for parameters without a gradient and reduces a map of them")


def _accumulation(measures: Measures, avoidable: Avoidable) -> str:
    return (
        f"gradients are reduced after each of {avoidable.number} micro-batches, "
        f"not once per optimizer step{avoidable.where}"
    )


def _buffers(measures: Measures, avoidable: Avoidable) -> str:
    return f"the first rank of its group sends its buffers before each forward pass{avoidable.where}"


def _unused(measures: Measures, avoidable: Avoidable) -> str:
    return (
        f"find_unused_parameters=True without need: all {avoidable.number} parameters get a gradient "
        "in every traced pass"
    )


def _metrics(measures: Measures, avoidable: Avoidable) -> str:
    return f"every step gathers values that training does not use{avoidable.where}"


def _parameters(measures: Measures, avoidable: Avoidable) -> str:
    return f"every step sends or averages parameters{avoidable.of_bytes()} that are equal on all ranks{avoidable.where}"


def _norms(measures: Measures, avoidable: Avoidable) -> str:
    return (
        f"{avoidable.calls + 1:.0f} small values are reduced one by one "
        f"between backward pass and optimizer{avoidable.where}"
    )


def on_gathered(measures: Measures, position: int) -> Array:
    """Mask of a rank's stacks in loop calls that gather values which no pass needs; shape (stacks,)."""
    facts = measures.job.ranks[position]
    tree = call_tree(facts)
    if METRICS not in measures.needless or not len(tree):
        return np.zeros(len(tree), bool)
    lines = {line.partition(", in ")[0] for line in called_at(measures, METRICS, position)}
    named = np.array([tree.words(frame) in lines for frame in range(len(tree.frames))], bool)
    called = call_of(tree)
    calls = np.unique(called[named[tree.frame] & (called >= 0)])
    return np.asarray(np.isin(called, calls))


def share_on_gathered(measures: Measures, position: int) -> float:
    """Share of a rank's time in Python of its script (`Measures.script`) in those stacks."""
    own_ns = measures.script[position].stack_ns
    total = float(own_ns.sum())
    return float(own_ns[on_gathered(measures, position)].sum()) / total if total else 0.0


Summary = Callable[[Measures, Avoidable], str]
MakeFix = Callable[[Measures, int], Fix]
_WORDS: dict[str, tuple[Summary, MakeFix]] = {
    ACCUMULATION: (_accumulation, fixes.accumulation),
    BUFFERS: (_buffers, fixes.buffers),
    UNUSED: (_unused, fixes.unused),
    METRICS: (_metrics, fixes.metrics),
    PARAMETERS: (_parameters, fixes.parameters),
    NORMS: (_norms, fixes.norms),
}

"""Candidates for avoidable communication, each under the rule of its cost: latency or bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.script.operators import call_of
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.redundant.cost import needless_us
from ddprof.analyzers.job.traffic.redundant import ACCUMULATION, BUFFERS, METRICS, NORMS, PARAMETERS, UNUSED
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.analyzers.job.whole_run.called import calling_us
from ddprof.analyzers.rules.evidence.exposures import TINY_BYTES
from ddprof.analyzers.rules.evidence.redundant import fixes
from ddprof.analyzers.rules.evidence.redundant.lines import called_at
from ddprof.findings import Basis, Candidate, Change, Evidence, Fix
from ddprof.tables import Array
from ddprof.units import format_bytes, format_count, format_share, format_us

_OF_SCRIPT = (METRICS, PARAMETERS, NORMS)  # called by its lines, and not by DDP
MIN_SHARE = 0.01  # of the step in it, mean over ranks; that of comm.barrier


class Avoidable(Struct, frozen=True):
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
        is_large = sum(t.total_bytes for t in traffic) >= TINY_BYTES * sum(t.count for t in traffic)
        if not traffic or (kind == ACCUMULATION or is_large) != is_volume:
            continue
        held_us = needless_us(measures.job, measures.needless[kind], waits=True)
        # A setting that serves nothing is worth a word however little it costs.
        if kind == UNUSED or held_us.mean() >= MIN_SHARE * measures.step_us:
            yield _candidate(measures, rule_id, kind, traffic, held_us)


def _candidate(
    measures: Measures, rule_id: str, kind: str, traffic: tuple[Traffic, ...], held_us: np.ndarray
) -> Candidate:
    worst = int(np.argmax(held_us))
    lines = called_at(measures, kind, worst)
    avoidable = Avoidable(traffic, measures.needless[kind].number, f", at {lines[0]}" if lines else "")
    cost_us, transfer_us = float(held_us.mean()), sum(t.transfer_us for t in traffic)
    each = avoidable.of_bytes(avoidable.calls, " each" * (round(avoidable.calls) > 1))
    evidence = Evidence(
        f"{format_count(round(avoidable.calls), f'{avoidable.op} call')} per step{each} are not needed; they take "
        f"{format_us(cost_us)} per step ({format_share(cost_us / measures.step_us)}), {format_us(transfer_us)} of it "
        "transfer"
    )
    summary, fix = _WORDS[kind]
    changes: tuple[Change, ...] = (Change("drop_needless", (), (), kind),)
    more_us = 0.0
    # Of what is computed on values gathered from all ranks, each rank's own part is left.
    part = share_on_gathered(measures, worst) * (len(held_us) - 1) / len(held_us) if kind == METRICS else 0.0
    if part > 0:
        changes = (*changes, Change("no_script", values=(1.0 - part,)))
        more_us = part * float(measures.script_us[worst])
    timed_us = calling_us(measures.job.ranks) if kind in _OF_SCRIPT else None
    return Candidate(
        id=rule_id,
        summary=summary.format(it=avoidable, size=avoidable.of_bytes(), more=avoidable.calls + 1),
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
        timed_us=None if timed_us is None else timed_us + more_us,
    )


def _more(measures: Measures, kind: str) -> Iterator[Evidence]:
    """Further evidence on a kind of avoidable communication."""
    largest = measures.settings.ddp.buffers
    if kind == BUFFERS and largest.largest:
        yield Evidence(f"the largest buffer is '{largest.largest}', {format_bytes(largest.largest_bytes)}")
    if kind == UNUSED:
        yield Evidence("each pass searches the graph for parameters without a gradient and reduces a map of them")


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


MakeFix = Callable[[Measures, int], Fix]
# Of each kind the summary, with the fields of Avoidable, and the fix.
_WORDS: dict[str, tuple[str, MakeFix]] = {
    ACCUMULATION: (
        "gradients are reduced after each of {it.number} micro-batches, not once per optimizer step{it.where}",
        fixes.accumulation,
    ),
    BUFFERS: ("DistributedDataParallel broadcasts buffers{size} before each forward pass{it.where}", fixes.buffers),
    UNUSED: (
        "find_unused_parameters=True without need: all {it.number} parameters get a gradient in every traced pass",
        fixes.unused,
    ),
    METRICS: ("every step calls {it.op} between its passes, likely for metrics{it.where}", fixes.metrics),
    PARAMETERS: (
        "every step sends or averages likely the model's parameters{size}, which stay equal without{it.where}",
        fixes.parameters,
    ),
    NORMS: (
        "{more:.0f} small values are reduced one by one between backward pass and optimizer{it.where}",
        fixes.norms,
    ),
}

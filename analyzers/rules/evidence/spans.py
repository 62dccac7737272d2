"""Evidence with rank and event for viewers: the longest span, gap or wait of a kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.idle_before_launches import starved
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.pauses import Pauses
from ddprof.findings import Evidence
from ddprof.tables import NULL, Table
from ddprof.units import format_name, format_share, format_us

LARGER_PART = 0.5  # of a wait: work that fills less of it does not explain it


def at(measures: Measures, position: int, start_ns: int, end_ns: int, text: str, event: str | None) -> Evidence:
    """An observation on one rank, converted from its clock to the run's."""
    shift = measures.job.shift_ns(position)
    return Evidence(text, measures.job.rank_ids[position], (start_ns - shift) / 1e3, (end_ns - shift) / 1e3, event)


def largest_span(measures: Measures, position: int, cause: str) -> list[Evidence]:
    """The longest host span of a cause on one rank, [] for none."""
    facts = measures.job.ranks[position]
    spans = facts.spans_of(cause)
    if not len(spans):
        return []
    start, end, *names = _longest(spans, "name", "operator")
    name = _name(facts, *names)
    return [at(measures, position, start, end, f"longest: {name} took {format_us((end - start) / 1e3)}", name)]


def _longest(spans: Table, *columns: str) -> list[int]:
    """Start, end and the other columns of the longest span."""
    row = int(np.argmax(spans["end_ns"] - spans["start_ns"]))
    return [int(spans[column][row]) for column in ("start_ns", "end_ns", *columns)]


def _name(facts: RankFacts, name: int, operator: int) -> str:
    call = facts.strings[name]
    return call if operator == NO_STRING else f"{facts.strings[operator]} ({call})"


def largest_gap(measures: Measures, position: int, cause: str) -> list[Evidence]:
    """The longest idle piece of a cause on one rank, and the operation that ended it."""
    facts = measures.job.ranks[position]
    gaps = facts.gaps_of(cause)
    if not len(gaps):
        return []
    start, end, following = _longest(gaps, "next_op")
    event = (
        facts.strings[int(facts.device_ops["name"][following])] if following != NULL and len(facts.device_ops) else None
    )
    text = f"longest gap: {format_us((end - start) / 1e3)}" + (f", ended by {format_name(event)}" if event else "")
    return [at(measures, position, start, end, text, event)]


def longer_phase(measures: Measures, position: int, least_us: float) -> list[Evidence]:
    """The range (optimizer, forward, backward, as PyTorch or the script names it) in which a rank's host spends most
    beyond its typical peer, at least `least_us` per step; [] for none.
    """
    ranks = measures.job.ranks
    own_ns = _phase_times(ranks[position])
    peers = [_phase_times(facts) for at_rank, facts in enumerate(ranks) if at_rank != position]
    usual = {name: averages.typical(np.array([peer.get(name, 0.0) for peer in peers])) for name in own_ns}
    name = max(own_ns, key=lambda name: own_ns[name] - usual[name], default="")
    if not name or own_ns[name] - usual[name] < least_us * 1e3:
        return []
    took, usually = format_us(own_ns[name] / 1e3), format_us(usual[name] / 1e3)
    text = f"{format_name(name)} takes {took} of its host per step, {usually} of the typical peer's"
    return [Evidence(text, measures.job.rank_ids[position])]


def _phase_times(facts: RankFacts) -> dict[str, float]:
    """Time of a host in the ranges of each name, ns per step."""
    names = facts.phases["name"]
    spans = {name: facts.phases.bounds_of(names == name) for name in np.unique(names).tolist()}
    return {
        facts.strings[name]: float(intervals.overlap(intervals.union(*bounds), *facts.marks).sum()) / len(facts.steps)
        for name, bounds in spans.items()
    }


def longest_idle(measures: Measures, position: int, reason: str) -> list[Evidence]:
    """The longest starvation of a rank's device for one reason (a field of `Starved`), [] for none."""
    facts = measures.job.ranks[position]
    start, end = getattr(starved(facts), reason)
    if not len(start):
        return []
    row = int(np.argmax(end - start))
    at_ns = np.sort(facts.device_ops["start_ns"])
    order = np.argsort(facts.device_ops["start_ns"], kind="stable")
    following = int(np.searchsorted(at_ns, end[row]))
    event = facts.strings[int(facts.device_ops["name"][order[following]])] if following < len(order) else None
    text = f"longest gap: {format_us((end[row] - start[row]) / 1e3)}"
    text += f", before {format_name(event)}" if event else ""
    return [at(measures, position, int(start[row]), int(end[row]), text, event)]


def largest_wait(measures: Measures, culprit: int) -> list[Evidence]:
    """The longest wait charged to a rank: who waited, and what the culprit ran meanwhile if it arrived last."""
    job = measures.job
    rows = np.flatnonzero(job.blame["culprit"] == culprit)
    if not len(rows):
        return []
    row = int(rows[np.argmax(job.blame["dur_ns"][rows])])
    victim, instance = int(job.blame["victim"][row]), int(job.blame["instance"][row])
    member = np.flatnonzero((job.members["instance"] == instance) & (job.members["rank"] == victim))[0]
    start, ready = int(job.members["start_ns"][member]), int(job.members["ready_ns"][member])
    op = COLLECTIVE_OPS[int(job.instances["op"][instance])]
    text = (
        f"rank {job.rank_ids[victim]} waited {format_us((ready - start) / 1e3)} in {op} for rank "
        f"{job.rank_ids[culprit]}"
    )
    waited = at(measures, victim, start, ready, text, op)
    if int(job.instances["late"][instance]) != culprit:
        return [waited]
    shift = job.clock.offset_ns(culprit) - job.clock.offset_ns(victim)
    work = _late_work(measures, culprit, start + shift, ready + shift)
    return [work, waited] if work.event else [replace(work, text=text)]


def _late_work(measures: Measures, position: int, start_ns: int, end_ns: int) -> Evidence:
    """The wait for a rank, with the work that fills most of it (times on its own clock): not the operation in which
    it is waited for.
    """
    facts = measures.job.ranks[position]
    first_ns = int(facts.steps["start_ns"][0])
    if first_ns < end_ns:  # nothing of this rank was recorded before its first step
        start_ns = max(start_ns, first_ns)
    ops = facts.device_ops
    held = np.minimum(ops["end_ns"], end_ns) - np.maximum(ops["start_ns"], start_ns)
    at_comm = facts.comms["device_op"]
    held[at_comm[at_comm != NULL]] = 0
    names, which = np.unique(ops["name"][held > 0], return_inverse=True)
    of_name = np.bincount(which, weights=held[held > 0], minlength=1)
    is_most = of_name.max() > LARGER_PART * (end_ns - start_ns)
    event = facts.strings[int(names[of_name.argmax()])] if is_most else None
    text = f"others wait for rank {measures.job.rank_ids[position]}" + (
        f", which is busy in {format_name(event)}" if event else ""
    )
    return at(measures, position, start_ns, end_ns, text, event)


def charged_us(measures: Measures, culprits: list[int]) -> float:
    """Waiting charged to these ranks, us per step, mean over the ranks of the job."""
    job = measures.job
    is_charged = np.isin(job.blame["culprit"], culprits)
    return float(job.blame["dur_ns"][is_charged].sum()) / 1e3 / max(1, measures.steps) / max(1, len(job.ranks))


def run_evidence(measures: Measures, pauses: Pauses, what: str) -> Evidence:
    """Pauses of a whole run, as capture recorded them."""
    text = (
        f"over {pauses.steps} steps outside the trace: {pauses.count} {what}, {format_us(pauses.total_ns / 1e3)} in "
        f"all ({format_share(pauses.share)} of the time), the longest {format_us(pauses.longest_ns / 1e3)}"
    )
    return Evidence(text, measures.job.rank_ids[pauses.position])

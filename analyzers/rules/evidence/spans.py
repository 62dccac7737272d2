"""Evidence with rank and event for viewers: the longest span, gap or wait of a kind."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import NO_STRING, Phase, RankFacts, Work
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.facts.work import launched_in
from ddprof.analyzers.job.device_idle import starved
from ddprof.analyzers.job.ledger import exposed_transfer as rank_exposed
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.stage_links import message_ends
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.analyzers.job.waiting.waits import members_of, ready_by_comm
from ddprof.analyzers.job.whole_run.pauses import Pauses
from ddprof.findings import Evidence
from ddprof.tables import NULL, Array
from ddprof.units import format_bytes, format_name, format_share, format_us

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
    row = int(np.argmax(spans["end_ns"] - spans["start_ns"]))
    start, end, call, operator = (int(spans[column][row]) for column in ("start_ns", "end_ns", "name", "operator"))
    name = facts.strings[call]
    if operator != NO_STRING:
        name = f"{facts.strings[operator]} ({name})"
    return [at(measures, position, start, end, f"longest: {name} took {format_us((end - start) / 1e3)}", name)]


def largest_gap(measures: Measures, position: int, cause: str) -> list[Evidence]:
    """The longest idle piece of a cause on one rank, and the operation that ended it."""
    return _largest_gap(measures, position, measures.job.ranks[position].gaps_of(cause).bounds, "ended by")


def longest_idle(measures: Measures, position: int) -> list[Evidence]:
    """The longest time that a rank's device waits for a launch, [] for none."""
    return _largest_gap(measures, position, starved(measures.job.ranks[position]).launching, "before")


def _largest_gap(measures: Measures, position: int, gaps: intervals.Intervals, words: str) -> list[Evidence]:
    """The longest of these gaps on a rank's device, with the operation after it."""
    if not len(gaps[0]):
        return []
    facts, row = measures.job.ranks[position], int(np.argmax(gaps[1] - gaps[0]))
    start, end = int(gaps[0][row]), int(gaps[1][row])
    after = facts.device_ops.take(facts.device_ops["start_ns"] >= end)
    event = facts.strings[int(after["name"][np.argmin(after["start_ns"])])] if len(after) else None
    text = f"longest gap: {format_us((end - start) / 1e3)}" + (f", {words} {format_name(event)}" if event else "")
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
    """Pauses of a whole run, as capture recorded them; other ranks' in turn hold up the job as well."""
    share, of_job = format_share(pauses.share), format_share(pauses.share_of_job)
    share += f" of the time, {of_job} with those of other ranks" if share != of_job else " of the time"
    text = (
        f"over {pauses.steps} steps outside the trace: {pauses.count} {what}, {format_us(pauses.total_ns / 1e3)} in "
        f"all ({share}), the longest {format_us(pauses.longest_ns / 1e3)}"
    )
    return Evidence(text, measures.job.rank_ids[pauses.position])


# Frequency of costs that only some steps have, whose mean per step is the time of no actual step.


class Occurrences(NamedTuple):
    """Frequency of a cost: `is_once`: it is in one of several recorded steps, so that its price assumes how often it
    comes; evidence on it, () where every step or none has the cost.
    """

    is_once: bool
    evidence: tuple[Evidence, ...]


def occurrences(measures: Measures, position: int, cause: str) -> Occurrences:
    """Frequency of a cause's host spans on a rank."""
    facts = measures.job.ranks[position]
    start, end = intervals.union(*facts.spans_of(cause).bounds)
    inside = facts.is_issued_in_steps(start)
    start, end = start[inside], end[inside]
    steps, recorded = len(np.unique(np.searchsorted(facts.steps["mark_ns"], start, side="right"))), len(facts.steps)
    # Several spans of one occurrence (a state is gathered, then written) count as one.
    each = format_us(float((end - start).sum()) / max(1, steps) / 1e3)
    text = f"in {steps} of {recorded} steps, {each} each time"
    if steps == 1:
        text = f"once in {recorded} steps, {each}; how often it recurs is unknown"
    seen = (Evidence(text, measures.job.rank_ids[position]),) if steps not in (0, recorded) else ()
    return Occurrences(steps == 1 < recorded, seen)


# Example events for findings of the whole job: one transfer, kernel or wait to jump to.
#
# Each is from the first rank that has one, as ranks are alike in such findings.


def exposed_transfer(measures: Measures, traffic: Traffic) -> list[Evidence]:
    """The transfer of this kind with most exposed time; [] where all is hidden."""
    job = measures.job
    code = COLLECTIVE_OPS.index(traffic.op)
    of_kind = (job.instances["op"] == code) & (job.groups["role"][job.instances["group"]] == traffic.role)
    for position, facts in enumerate(job.ranks):
        rows = members_of(job.members, position)
        comms = job.members["comm"][rows[of_kind[job.members["instance"][rows]]]]
        comms = comms[_inside(facts, facts.comms["start_ns"][comms])]
        if not len(comms):
            continue
        ready = ready_by_comm(job.members, position, facts)
        end = facts.comms["end_ns"]
        held = intervals.overlap(rank_exposed(facts, ready), ready, end)[comms]
        if not held.any():
            continue
        comm = int(comms[np.argmax(held)])
        took_us, size = (end[comm] - ready[comm]) / 1e3, int(facts.comms["size_bytes"][comm])
        what = traffic.op if size == NULL else f"{traffic.op} of {format_bytes(size)}"
        text = f"longest: {what} took {format_us(took_us)}, {format_us(held.max() / 1e3)} exposed"
        return [at(measures, position, int(ready[comm]), int(end[comm]), text, traffic.op)]
    return []


def slowest_transfer(measures: Measures, groups: Collection[int], rank: int) -> list[Evidence]:
    """The longest transfer of a rank in some groups (rows of JobFacts.groups)."""
    job = measures.job
    if rank not in job.rank_ids:
        return []
    group = job.instances["group"][job.members["instance"]]
    return _slowest(measures, job.rank_ids.index(rank), np.isin(group, list(groups)))


def slowest_message(measures: Measures, pairs: Collection[tuple[int, int]]) -> list[Evidence]:
    """The longest message transfer within any of the pairs of ranks (positions, lower first)."""
    low, high = message_ends(measures.job)
    between = np.zeros(len(low), bool)
    for a, b in pairs:
        between |= (low == a) & (high == b)
    position = min(p for pair in pairs for p in pair)
    return _slowest(measures, position, between[measures.job.members["instance"]])


def _slowest(measures: Measures, position: int, wanted: Array) -> list[Evidence]:
    """The longest transfer of a rank among the wanted rows of MEMBERS (mask)."""
    job, members = measures.job, measures.job.members
    rows = members_of(members, position)
    rows = rows[wanted[rows]]
    rows = rows[_inside(job.ranks[position], members["start_ns"][rows])]
    if not len(rows):
        return []
    row = int(rows[np.argmax((members["end_ns"] - members["ready_ns"])[rows])])
    ready, end, instance = int(members["ready_ns"][row]), int(members["end_ns"][row]), int(members["instance"][row])
    op, size = COLLECTIVE_OPS[int(job.instances["op"][instance])], int(job.instances["size_bytes"][instance])
    what = op if size == NULL else f"{op} of {format_bytes(size)}"
    text = f"slowest: {what} took {format_us((end - ready) / 1e3)} after the last rank entered"
    return [at(measures, position, ready, end, text, op)]


def longest_stage_wait(measures: Measures) -> list[Evidence]:
    """The longest wait of a pipeline stage for a message of another."""
    job, members = measures.job, measures.job.members
    wait = np.where(job.instances["is_message"][members["instance"]], members["ready_ns"] - members["start_ns"], 0)
    for position, facts in enumerate(job.ranks):
        rows = members_of(members, position)
        wait[rows] *= _inside(facts, members["start_ns"][rows])
    if not len(wait) or wait.max() <= 0:
        return []
    row = int(wait.argmax())
    position, start, ready = (int(members[name][row]) for name in ("rank", "start_ns", "ready_ns"))
    op = COLLECTIVE_OPS[int(job.instances["op"][members["instance"][row]])]
    text = f"longest wait for another stage: {format_us((ready - start) / 1e3)} in {op}"
    return [at(measures, position, start, ready, text, op)]


def longest_fp32_gemm(measures: Measures) -> list[Evidence]:
    """The longest single-precision matrix kernel; [] on CPU ranks, whose operators are not device work."""
    for position, facts in enumerate(measures.job.ranks):
        groups, ops = facts.kernel_groups, facts.device_ops
        fp32 = groups.take(np.flatnonzero(groups["is_fp32"]))
        kind = {(int(n), int(s)) for n, s in zip(fp32["name"], fp32["shape"], strict=True)}
        named = np.flatnonzero(np.isin(ops["name"], fp32["name"]) & _inside(facts, ops["start_ns"]))
        rows = [i for i in named.tolist() if (int(ops["name"][i]), int(ops["shape"][i])) in kind]
        if not rows:
            continue
        row = max(rows, key=lambda i: int(ops["end_ns"][i] - ops["start_ns"][i]))
        start, end, name = int(ops["start_ns"][row]), int(ops["end_ns"][row]), facts.strings[int(ops["name"][row])]
        return [at(measures, position, start, end, f"longest: {format_us((end - start) / 1e3)} in one kernel", name)]
    return []


def optimizer_step(measures: Measures) -> list[Evidence]:
    """The optimizer's kernels, first to last, in the step in which they take longest."""
    for position, facts in enumerate(measures.job.ranks):
        ops = facts.device_ops
        if not len(ops):
            continue
        is_update = launched_in(facts, Phase.OPTIMIZER) & (ops["work"] == Work.COMPUTE)
        is_update &= _inside(facts, ops["start_ns"])
        step = np.searchsorted(facts.steps["start_ns"], ops["start_ns"][is_update], side="right") - 1
        spans = []
        for number in np.unique(step).tolist():
            start, end = ops["start_ns"][is_update][step == number], ops["end_ns"][is_update][step == number]
            spans.append((int(end.max() - start.min()), int(start.min()), int(end.max()), len(start)))
        if spans:
            length, first, last, count = max(spans)
            text = f"longest run: {count} kernels in {format_us(length / 1e3)}"
            return [at(measures, position, first, last, text, None)]
    return []


def _inside(facts: RankFacts, start_ns: Array) -> Array:
    """Mask of moments of a rank between its first step mark and the end of its last step."""
    return np.asarray((start_ns >= facts.steps["start_ns"][0]) & (start_ns < facts.steps["end_ns"][-1]))

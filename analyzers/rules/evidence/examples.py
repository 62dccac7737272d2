"""Example events for findings of the whole job: one transfer, kernel or wait to jump to.

Each is from the first rank that has one, as ranks are alike in such findings.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts, Work
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.facts.work import launched_in
from ddprof.analyzers.job.ledger import exposed_transfer as rank_exposed
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.stage_links import message_ends
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.analyzers.job.waiting.members import members_of
from ddprof.analyzers.job.waiting.waits import ready_by_comm
from ddprof.analyzers.rules.evidence.spans import at
from ddprof.findings import Evidence
from ddprof.tables import NULL, Array
from ddprof.units import format_bytes, format_us


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

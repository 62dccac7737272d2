"""Time that a rank loses to autograd's anomaly mode, to communication hooks, and to calls in which ranks meet."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.script.barriers import is_meeting
from ddprof.analyzers.facts.script.comm_hooks import hook_name
from ddprof.analyzers.facts.script.host_time import blocked, computes
from ddprof.analyzers.facts.work import compute_work
from ddprof.intervals import Intervals
from ddprof.tables import Table


def anomaly_us(facts: RankFacts) -> float:
    """Time of the host in the mode, us per step."""
    return anomaly_part_us(facts, facts.anomaly_work)


def anomaly_held_us(facts: RankFacts) -> float:
    """Time that a rank loses to the mode per step: on a CPU rank all, else its kernels and the device's idle time."""
    if computes(facts) or not len(facts.anomaly_work):
        return anomaly_us(facts)
    work, ops = facts.anomaly_work, facts.device_ops
    idle = intervals.union(*facts.gaps_of("host_launch", "host_sync").bounds)
    idle_ns = float((work["share"] * intervals.overlap(idle, *work.bounds)).sum())
    checks = intervals.union(*work.bounds_of(work["is_check"]))
    searching = ops.bounds_of((ops["work"] != Work.COMM) & intervals.contains(checks, ops["launch_ns"]))
    busy_ns = float(intervals.overlap(intervals.union(*searching), *facts.steps.bounds).sum())
    return (idle_ns + busy_ns) / 1e3 / len(facts.steps)


def anomaly_part_us(facts: RankFacts, work: Table) -> float:
    """Host time of the mode in some rows of ANOMALY_WORK, us per step."""
    inside = facts.is_issued_in_steps(work["start_ns"])
    spent_ns = np.where(inside, work["share"] * (work["end_ns"] - work["start_ns"]), 0.0)
    return float(spent_ns.sum()) / 1e3 / len(facts.steps)


def in_hooks(facts: RankFacts) -> Intervals:
    """Intervals of the host in hooks outside the collectives that they call, and wait for; on the rank's own clock."""
    calls = facts.comms["launch_ns"], facts.comms["launch_end_ns"]  # both are missing, and equal, where there was none
    return intervals.subtract(intervals.union(*facts.comm_hooks.bounds), intervals.merge(calls, blocked(facts)))


def held_by_hooks_us(facts: RankFacts) -> float:
    """Time that a rank loses to hooks per step: on a CPU rank all, else that in which the device idles for launches."""
    if not len(facts.comm_hooks):
        return 0.0
    held = in_hooks(facts)
    if not computes(facts):
        held = intervals.intersect(held, facts.gaps_of("host_launch").bounds)
    return facts.per_step_us(held)


def longest_hook(facts: RankFacts) -> str:
    """The function that most of the time is spent in, as people write it."""
    hooks = facts.comm_hooks
    names, which = np.unique(hooks["name"], return_inverse=True)
    spent = np.bincount(which, weights=hooks["end_ns"] - hooks["start_ns"])
    return hook_name(facts, int(names[np.argmax(spent)]))


def meeting_spans(facts: RankFacts) -> Intervals:
    """Time from each call that makes ranks meet to the end of its communication, on the rank's clock."""
    return intervals.merge(facts.meetings.bounds, facts.comms.bounds_of(is_meeting(facts)))


def held_in_meetings_us(facts: RankFacts) -> float:
    """Time from a meeting until the rank computes again, us per step; includes refilling its queue."""
    spans = meeting_spans(facts)
    if not len(spans[0]):
        return 0.0
    start, end = intervals.subtract(intervals.union(*facts.steps.bounds), compute_work(facts))
    first = np.minimum(np.searchsorted(spans[1], start, side="right"), len(spans[0]) - 1)
    begins = np.maximum(start, spans[0][first])
    held = (spans[1][first] > start) & (begins < end)
    return float((end - begins)[held].sum()) / 1e3 / len(facts.steps)

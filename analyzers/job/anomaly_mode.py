"""Time of a rank in autograd's anomaly mode."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.script.host_time import computes
from ddprof.tables import Table


def anomaly_us(facts: RankFacts) -> float:
    """Time of the host in the mode, us per step."""
    return time_us(facts, facts.anomaly_work)


def anomaly_held_us(facts: RankFacts) -> float:
    """Time that a rank loses to the mode per step: on a CPU rank all, else its kernels and the device's idle time."""
    if computes(facts) or not len(facts.anomaly_work):
        return anomaly_us(facts)
    work, ops = facts.anomaly_work, facts.device_ops
    idle = intervals.union(*facts.gaps_of("host_launch", "host_sync").bounds)
    idle_ns = float((work["share"] * intervals.overlap(idle, *work.bounds)).sum())
    checks = intervals.union(*work.take(work["is_check"]).bounds)
    searching = ops.take((ops["work"] != Work.COMM) & intervals.contains(checks, ops["launch_ns"])).bounds
    busy_ns = float(intervals.overlap(intervals.union(*searching), *facts.steps.bounds).sum())
    return (idle_ns + busy_ns) / 1e3 / len(facts.steps)


def time_us(facts: RankFacts, work: Table) -> float:
    """Host time of the mode in some rows of ANOMALY_WORK, us per step."""
    inside = facts.is_issued_in_steps(work["start_ns"])
    spent_ns = np.where(inside, work["share"] * (work["end_ns"] - work["start_ns"]), 0.0)
    return float(spent_ns.sum()) / 1e3 / len(facts.steps)

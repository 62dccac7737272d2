"""Cost of avoidable communication by the ledger."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.script.host_time import between_operators
from ddprof.analyzers.facts.work import host_work
from ddprof.analyzers.job.ledger import cause_intervals
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.redundant import Needless
from ddprof.analyzers.job.waiting.waits import ready_by_comm
from ddprof.tables import Array


def needless_us(job: JobFacts, kind: Needless | None, waits: bool) -> Array:
    """Time of each rank in some communication alone, with nothing computing, us per step, shape (ranks,).

    `waits`: include waits for late ranks. On a CPU rank, whose host computes, it includes the host's calls.
    """
    if kind is None:
        return np.zeros(len(job.ranks))
    return np.array([_of_rank(job, position, kind, waits) for position in range(len(job.ranks))])


def _of_rank(job: JobFacts, position: int, kind: Needless, waits: bool) -> float:
    facts, needless = job.ranks[position], kind.comms[position]
    ready = ready_by_comm(job.members, position, facts)
    comms = facts.comms
    start = comms["start_ns"] if waits else ready
    computing = intervals.merge(host_work(facts), between_operators(facts))  # of a device rank's host nothing
    # While another communication is under way the rank is held without these, too.
    kept = intervals.union(comms["start_ns"][~needless], comms["end_ns"][~needless])
    gone = intervals.subtract(intervals.union(start[needless], comms["end_ns"][needless]), kept)
    exposed = cause_intervals(facts, ready)
    held = intervals.merge(exposed["comm_transfer"], exposed["comm_wait"]) if waits else exposed["comm_transfer"]
    spans = intervals.merge(intervals.intersect(gone, held), intervals.intersect(kind.host[position], computing))
    return facts.per_step_us(spans)

"""The ledger: per rank and step, every nanosecond in exactly one cause. Sums are exact by construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import compute_work, computes
from ddprof.analyzers.job.model import LEDGER
from ddprof.analyzers.job.waiting.waits import ready_by_comm
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.intervals import Intervals
from ddprof.tables import Array, Table, concat


def cause_intervals(facts: RankFacts, ready_ns: Array) -> dict[str, Intervals]:
    """Disjoint interval sets of one rank by cause, on its own clock; pipeline_bubble has none.

    `ready_ns`, shape (comms,): when each communication had all its members.
    """
    exposed, moved = facts.exposed.bounds, intervals.union(*moving(facts, ready_ns)[:2])
    sets = {
        "compute": compute_work(facts),
        "comm_wait": intervals.subtract(exposed, moved),
        "comm_transfer": intervals.intersect(exposed, moved),
    }
    idle = [cause for cause in CAUSES if cause not in sets and cause != "pipeline_bubble"]
    gaps = facts.gaps_of(*idle)
    by_cause = np.argsort(gaps["cause"], kind="stable")
    begins = np.searchsorted(gaps["cause"][by_cause], np.arange(len(CAUSES) + 1)).tolist()
    start, end = gaps["start_ns"][by_cause], gaps["end_ns"][by_cause]
    for cause in idle:
        of_cause = slice(*begins[CAUSE_CODE[cause] : CAUSE_CODE[cause] + 2])
        sets[cause] = start[of_cause], end[of_cause]
    return sets


def exposed_transfer(facts: RankFacts, ready_ns: Array) -> Intervals:
    """Intervals of a rank in "comm_transfer": no compute, and all members have arrived."""
    return intervals.intersect(facts.exposed.bounds, intervals.union(*moving(facts, ready_ns)[:2]))


def moving(facts: RankFacts, ready_ns: Array) -> tuple[Array, Array, Array]:
    """Stretches in which communications move data, all members having arrived: starts, ends, rows of comms.

    A message of a CPU rank ends when it is waited for, which may be long after it arrived: it moves while it holds its
    thread.
    """
    messages = facts.messages["comm"][: None if computes(facts) else 0]
    lasts = ~np.isin(np.arange(len(facts.comms)), messages)
    held = facts.exposed.take(np.isin(facts.exposed["comm"], messages))
    rows = np.append(np.flatnonzero(lasts), held["comm"])
    end = np.append(facts.comms["end_ns"][lasts], held["end_ns"])
    start = np.maximum(ready_ns[rows], np.append(ready_ns[lasts], held["start_ns"]))
    kept = start < end
    return start[kept], end[kept], rows[kept]


def build_ledger(
    ranks: Sequence[RankFacts], members: Table, causes: Sequence[Mapping[str, Intervals]], bubble_ns: Array
) -> Table:
    """LEDGER: one row per rank, step and cause.

    `causes`: the intervals of each rank by cause. `bubble_ns`, shape (ranks,): pipeline wait per step that the
    schedule makes unavoidable. Waiting for another stage is booked to pipeline_bubble up to that allowance, and to
    comm_wait beyond it.
    """
    tables = [LEDGER.empty()]
    for position, facts in enumerate(ranks):
        steps, bubble = facts.steps.bounds, np.zeros(len(facts.steps), np.int64)
        booked = {cause: intervals.overlap(spans, *steps) for cause, spans in causes[position].items()}
        if bubble_ns[position] > 0:
            waits = intervals.overlap(stage_waiting(facts, members, position), *steps)
            bubble = np.minimum(np.minimum(waits, booked["comm_wait"]), int(bubble_ns[position]))
        booked |= {"pipeline_bubble": bubble, "comm_wait": booked["comm_wait"] - bubble}
        rows = {
            "rank": position,
            "step": np.tile(np.arange(len(bubble)), len(CAUSES)),
            "cause": np.repeat(np.arange(len(CAUSES)), len(bubble)),
            "dur_ns": np.concatenate([booked[cause] for cause in CAUSES]),
        }
        tables.append(LEDGER.table(rows))
    return concat(LEDGER, tables)


def stage_waiting(facts: RankFacts, members: Table, position: int) -> Intervals:
    """Intervals in which a rank waits, exposed, inside point-to-point kernels, on its own clock."""
    in_messages = facts.exposed.take(np.isin(facts.exposed["comm"], facts.messages["comm"]))
    ready_ns = ready_by_comm(members, position, facts)
    return intervals.subtract(in_messages.bounds, intervals.union(*moving(facts, ready_ns)[:2]))

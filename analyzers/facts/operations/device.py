"""The operations of a device: its kernels, the collectives, the copies."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.operations.model import OPERATIONS, RankWork
from ddprof.analyzers.facts.operations.pieces import busy_table, held
from ddprof.tables import NULL, Array, Table, concat


def device_work(facts: RankFacts) -> RankWork:
    """RANK_WORK of a rank on a device."""
    ops = facts.device_ops
    own = np.flatnonzero(ops["work"] != Work.COMM)
    operations = concat(OPERATIONS, [_kernels(ops.take(own)), comm_operations(facts)])
    compute = np.flatnonzero(operations["work"] == Work.COMPUTE)
    copies = np.flatnonzero(operations["work"] == Work.COPY)
    exposed = facts.gaps_of("memcpy").bounds
    start, end, row = held(operations, copies)
    copy_start, copy_end, piece, _ = intervals.intersect_rows((start, end), exposed)
    parts = [held(operations, compute), (copy_start, copy_end, row[piece]), comm_pieces(facts, len(own))]
    return RankWork(operations, busy_table(parts, facts.steps))


def comm_operations(facts: RankFacts) -> Table:
    """COMMS as operations."""
    comms, ops = facts.comms, facts.device_ops
    known = comms["device_op"] != NULL

    def above(column: str, missing: int) -> Array:
        found = np.full(len(comms), missing, np.int64)
        found[known] = ops[column][comms["device_op"][known]]
        return found

    return OPERATIONS.table(
        {
            "start_ns": comms["start_ns"],
            "end_ns": comms["end_ns"],
            "work": np.full(len(comms), Work.COMM),
            "name": comms["name"],
            "operator": above("operator", NO_STRING),
            "shape": np.full(len(comms), NO_STRING),
            "track": comms["track"].astype(np.int64),
            "called_ns": comms["launch_ns"],
            "thread": above("thread", NULL),
        }
    )


def comm_pieces(facts: RankFacts, first: int) -> tuple[Array, Array, Array]:
    """Exposed communication as pieces; `first`: row of operations where COMMS begin."""
    exposed = facts.exposed
    return exposed["start_ns"], exposed["end_ns"], exposed["comm"] + first


def _kernels(ops: Table) -> Table:
    return OPERATIONS.table(
        {
            **{name: ops[name] for name in ("start_ns", "end_ns", "work", "name", "operator", "shape", "thread")},
            "track": ops["track"].astype(np.int64),
            "called_ns": ops["launch_ns"],
        }
    )

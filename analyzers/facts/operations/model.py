"""The operations of one rank, and its busy time divided among them."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.tables import Column, Schema, Table

OPERATIONS = Schema(
    "operations",
    (
        Column("start_ns", "int64", "start"),
        Column("end_ns", "int64", "end"),
        Column("work", "uint8", "facts.model.Work"),
        Column("name", "int32", "kernel; on a CPU rank an operator; -2147483648 for work of no operator"),
        Column("operator", "int32", "innermost operator above the launch; on a CPU rank the outermost around"),
        Column("shape", "int32", "shapes of that operator; -2147483648 if not recorded"),
        Column("track", "int64", "stream or thread", nullable=True),
        Column("called_ns", "int64", "when the host called it", nullable=True),
        Column("thread", "int64", "host track of that call", nullable=True),
    ),
)

BUSY = Schema(
    "busy",
    (
        Column("start_ns", "int64", "from here, inside a step"),
        Column("end_ns", "int64", "to here; no moment of a rank is in two rows"),
        Column("operation", "int64", "row of operations that has this time"),
        Column("step", "int64", "row of steps"),
    ),
)


@dataclass(frozen=True)
class RankWork:
    """OPERATIONS and BUSY of one rank. The rows of BUSY sum to what the ledger books to compute, exposed communication
    and exposed copies: where several operations run at once, computing comes before communication before copies, and
    of equals the one that ends last has the time.
    """

    operations: Table
    busy: Table

"""Operations of a rank and the owner of each busy moment: kernels, collectives and copies; on a CPU rank operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.cpu.operators import LIBRARY, shapes_of
from ddprof.analyzers.facts.cpu.rank import training_threads
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import matches, times
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Column, Schema, Table, concat

OPERATIONS = Schema(
    "operations",
    Column("start_ns", "int64", "start"),
    Column("end_ns", "int64", "end"),
    Column("work", "uint8", "facts.model.Work"),
    Column("name", "int32", "kernel; on a CPU rank an operator; -2147483648 for work of no operator"),
    Column("operator", "int32", "innermost operator above the launch; on a CPU rank the outermost around"),
    Column("shape", "int32", "shapes of that operator; -2147483648 if not recorded"),
    Column("track", "int64", "stream or thread", nullable=True),
    Column("called_ns", "int64", "when the host called it", nullable=True),
    Column("thread", "int64", "host track of that call", nullable=True),
)
BUSY = Schema(
    "busy",
    Column("start_ns", "int64", "from here, inside a step"),
    Column("end_ns", "int64", "to here; no moment of a rank is in two rows"),
    Column("operation", "int64", "row of operations that has this time"),
    Column("step", "int64", "row of steps"),
)
Pieces = tuple[Array, Array, Array]  # start, end, row of operations; each moment in one piece


class RankWork(Struct, frozen=True):
    """OPERATIONS and BUSY of one rank. Rows of BUSY sum to the ledger's compute, exposed communication and exposed
    copies: among concurrent operations compute precedes communication precedes copies, and among equals the one that
    ends last owns the time.
    """

    operations: Table
    busy: Table


def rank_work(facts: RankFacts, read_again: Callable[[str], RankTrace]) -> RankWork:
    """Operations of a rank in its steps. `read_again`: reads the trace of a CPU rank by its path."""
    return _device_work(facts) if facts.is_device_rank else _cpu_work(facts, read_again(facts.path))


def held(operations: Table, rows: Array) -> Pieces:
    """Pieces of time owned by some operations; concurrent time belongs to the one that ends last."""
    start, end, row = intervals.holders(operations["start_ns"][rows], operations["end_ns"][rows])
    return start, end, rows[row]


def _busy_table(parts: Sequence[Pieces], steps: Table) -> Table:
    """BUSY from disjoint pieces: their parts inside a step."""
    start, end, row = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    start, end, row = start[order], end[order], row[order]
    lo, hi, piece, step = intervals.intersect_rows((start, end), steps.bounds)
    return BUSY.table({"start_ns": lo, "end_ns": hi, "operation": row[piece], "step": step})


def _device_work(facts: RankFacts) -> RankWork:
    """Operations of a rank with a device."""
    ops = facts.device_ops
    rows = np.flatnonzero(ops["work"] != Work.COMM)
    operations = concat(OPERATIONS, [_kernels(ops.take(rows)), _comm_operations(facts)])
    compute = np.flatnonzero(operations["work"] == Work.COMPUTE)
    copies = np.flatnonzero(operations["work"] == Work.COPY)
    exposed = facts.gaps_of("memcpy").bounds
    start, end, row = held(operations, copies)
    copy_start, copy_end, piece, _ = intervals.intersect_rows((start, end), exposed)
    parts = [held(operations, compute), (copy_start, copy_end, row[piece]), _comm_pieces(facts, len(rows))]
    return RankWork(operations, _busy_table(parts, facts.steps))


def _comm_operations(facts: RankFacts) -> Table:
    """COMMS as operations."""
    comms, ops = facts.comms, facts.device_ops
    op = np.where(comms["device_op"] == NULL, -1, comms["device_op"])
    return OPERATIONS.table(
        {
            "start_ns": comms["start_ns"],
            "end_ns": comms["end_ns"],
            "work": Work.COMM,
            "name": comms["name"],
            "operator": np.append(ops["operator"], NO_STRING)[op],  # row -1 is none
            "shape": NO_STRING,
            "track": comms["track"].astype(np.int64),
            "called_ns": comms["launch_ns"],
            "thread": np.append(ops["thread"], NULL)[op],
        }
    )


def _comm_pieces(facts: RankFacts, first: int) -> Pieces:
    """Exposed communication as pieces; `first`: first row of COMMS in the operations."""
    return *facts.exposed.bounds, facts.exposed["comm"] + first


def _kernels(ops: Table) -> Table:
    return OPERATIONS.table(
        {
            **{name: ops[name] for name in ("start_ns", "end_ns", "work", "name", "operator", "shape", "thread")},
            "track": ops["track"].astype(np.int64),
            "called_ns": ops["launch_ns"],
        }
    )


def _cpu_work(facts: RankFacts, trace: RankTrace) -> RankWork:
    """Operators of a CPU rank, each without those that it calls, and its collectives.

    Facts hold only the outermost operators, so the trace is read again. Where two threads compute at once, the first
    owns the time.
    """
    threads = training_threads(trace, facts.main_thread) if facts.main_thread is not None else np.empty(0, np.int64)
    wanted = (trace.events["kind"] == Kind.CPU_OP) & ~matches(LIBRARY, trace.strings)[trace.events["name"]]
    tables: list[Table] = []
    parts: list[Pieces] = []
    left, first = facts.host_work.bounds, 0
    for thread in threads.tolist():
        on_thread = wanted & (trace.events["track"] == thread) & (trace.events["dur_ns"] > 0)
        operators, (start, end, row) = _own_time(trace, np.flatnonzero(on_thread), thread)
        lo, hi, piece, _ = intervals.intersect_rows((start, end), left)
        parts.append((lo, hi, row[piece] + first))
        left = intervals.subtract(left, intervals.union(start, end))
        tables.append(operators)
        first += len(operators)
    nobodys = _of_nobody(left)
    parts += [(*left, np.arange(len(left[0])) + first), _comm_pieces(facts, first + len(nobodys))]
    operations = concat(OPERATIONS, [*tables, nobodys, _comm_operations(facts)])
    return RankWork(operations, _busy_table(parts, facts.steps))


def _own_time(trace: RankTrace, rows: Array, thread: int) -> tuple[Table, Pieces]:
    """Operators of a thread and their self time."""
    events = trace.events
    (start_ns, end_ns), name = times(events, rows), events["name"][rows]
    outermost, pieces = np.arange(len(rows)), (rows, rows, rows)
    if len(rows):
        until_ns, parent, depth = intervals.nested(start_ns, end_ns)
        for level in range(2, int(depth.max()) + 1):
            here = np.flatnonzero(depth == level)
            outermost[here] = outermost[parent[here]]
        pieces = intervals.innermost(start_ns, until_ns, parent)
    table = {
        "start_ns": start_ns,
        "end_ns": end_ns,
        "work": Work.COMPUTE,
        "name": name,
        "operator": name[outermost],
        "shape": shapes_of(trace, rows),
        "track": thread,
        "called_ns": start_ns,
        "thread": thread,
    }
    return OPERATIONS.table(table), pieces


def _of_nobody(left: intervals.Intervals) -> Table:
    """Compute time that no operator of a training thread covers."""
    columns = {c.name: NULL if c.nullable else NO_STRING for c in OPERATIONS.columns}
    return OPERATIONS.table({**columns, "start_ns": left[0], "end_ns": left[1], "work": Work.COMPUTE})

"""The operations of a CPU rank: its operators, each without those that it calls, and its collectives.

Facts hold the outermost operators alone: the others are read from the trace again when somebody asks.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.cpu.operators import shapes_of
from ddprof.analyzers.facts.cpu.rank import training_threads
from ddprof.analyzers.facts.cpu.waits import LIBRARY
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.operations.device import comm_operations, comm_pieces
from ddprof.analyzers.facts.operations.model import OPERATIONS, RankWork
from ddprof.analyzers.facts.operations.pieces import Pieces, busy_table
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table, concat


def cpu_work(facts: RankFacts, trace: RankTrace) -> RankWork:
    """RANK_WORK of a CPU rank. Where two threads compute at once, the first has the time: a rank has one."""
    threads = training_threads(trace, facts.main_thread) if facts.main_thread is not None else np.empty(0, np.int64)
    wanted = (trace.events["kind"] == Kind.CPU_OP) & ~matches(LIBRARY, trace.strings)[trace.events["name"]]
    tables: list[Table] = []
    parts: list[Pieces] = []
    left, first = facts.host_work.bounds, 0
    for thread in threads.tolist():
        mine = wanted & (trace.events["track"] == thread) & (trace.events["dur_ns"] > 0)
        operators, (start, end, row) = _own_time(trace, np.flatnonzero(mine), thread)
        lo, hi, piece, _ = intervals.intersect_rows((start, end), left)
        parts.append((lo, hi, row[piece] + first))
        left = intervals.subtract(left, intervals.union(start, end))
        tables.append(operators)
        first += len(operators)
    nobodys = _of_nobody(left)
    parts += [(*left, np.arange(len(left[0])) + first), comm_pieces(facts, first + len(nobodys))]
    operations = concat(OPERATIONS, [*tables, nobodys, comm_operations(facts)])
    return RankWork(operations, busy_table(parts, facts.steps))


def _own_time(trace: RankTrace, rows: Array, thread: int) -> tuple[Table, Pieces]:
    """The operators of a thread, and when each runs and none that it calls does."""
    events = trace.events
    rows = rows[np.lexsort((-events["dur_ns"][rows], events["ts_ns"][rows]))]
    start_ns, dur_ns, name = events["ts_ns"][rows], events["dur_ns"][rows], events["name"][rows]
    outermost, pieces = np.arange(len(rows)), (rows, rows, rows)
    if len(rows):
        end_ns, parent, depth = intervals.nested(start_ns, start_ns + dur_ns)
        for level in range(2, int(depth.max()) + 1):
            here = np.flatnonzero(depth == level)
            outermost[here] = outermost[parent[here]]
        pieces = intervals.innermost(start_ns, end_ns, parent)
    of_thread = np.full(len(rows), thread)
    table = {
        "start_ns": start_ns,
        "end_ns": start_ns + dur_ns,
        "work": np.full(len(rows), Work.COMPUTE),
        "name": name,
        "operator": name[outermost],
        "shape": shapes_of(trace, rows),
        "track": of_thread,
        "called_ns": start_ns,
        "thread": of_thread,
    }
    return OPERATIONS.table(table), pieces


def _of_nobody(left: intervals.Intervals) -> Table:
    """Computing that no operator of a training thread covers."""
    count = len(left[0])
    columns = {c.name: np.full(count, NULL if c.nullable else NO_STRING) for c in OPERATIONS.columns}
    columns |= {"start_ns": left[0], "end_ns": left[1], "work": np.full(count, Work.COMPUTE)}
    return OPERATIONS.table(columns)

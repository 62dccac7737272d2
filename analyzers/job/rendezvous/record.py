"""Communication that left no record, written into the facts of its ranks: inferred rendezvous and lost collectives.

A member of a rendezvous communicates from its arrival until it resumes, on a stream of its own: waits, blame, ledger,
replay and pages then treat it as any collective, under the name INFERRED. The rank's idle time inside is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import COMMS, DEVICE_OPS, EXPOSED, GAPS, NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import INFERRED, OP_CODE
from ddprof.analyzers.facts.work import knows_launches
from ddprof.analyzers.job.rendezvous.inferred import Meeting
from ddprof.causes import CAUSE_CODE
from ddprof.model import HealthNote, ProcessGroup
from ddprof.tables import NULL, Array, Table, concat


def inferred_note(meetings: Sequence[Meeting]) -> HealthNote:
    """Note on ranks that met without a trace of it."""
    issue = f"{len(meetings)} times ranks stopped and resumed together without a recorded event"
    return HealthNote(issue, "counted as inferred rendezvous, where ranks wait for the last one", "info")


def with_meetings(ranks: Sequence[RankFacts], meetings: Sequence[Meeting]) -> tuple[RankFacts, ...]:
    """The ranks with their part of each rendezvous."""
    return tuple(_with_own(p, facts, meetings) for p, facts in enumerate(ranks))


def _with_own(position: int, facts: RankFacts, meetings: Sequence[Meeting]) -> RankFacts:
    joined = [(number, m, m.members.index(position)) for number, m in enumerate(meetings) if position in m.members]
    if not joined:
        return facts
    joined.sort(key=lambda each: (each[1].resumed_ns[each[2]], each[1].arrived_ns[each[2]]))
    start = np.array([m.arrived_ns[at] for _, m, at in joined], np.int64)
    end = np.array([m.resumed_ns[at] for _, m, at in joined], np.int64)
    start[1:] = np.maximum(start[1:], end[:-1])  # one that ends one rendezvous may go straight into the next
    groups = {group: at for at, group in enumerate({m.group: m for _, m, _ in joined}, len(facts.process_groups))}
    on_host = np.array([m.on_host for _, m, _ in joined]) & knows_launches(facts)
    launch = np.where(on_host, start, np.array([m.launch_ns[at] for _, m, at in joined], np.int64))
    launch = np.where(launch == NULL, NULL, np.minimum(launch, start))
    added = tuple(ProcessGroup(INFERRED, INFERRED, group, len(group)) for group in groups)
    facts = replace(facts, strings=(*facts.strings, INFERRED), process_groups=(*facts.process_groups, *added))
    rows = {
        "start_ns": start,
        "end_ns": end,
        "launch_ns": launch,
        "launch_end_ns": np.where(on_host, end, launch),  # a host that waits is in the call until it resumes
    }
    group = np.array([groups[m.group] for _, m, _ in joined], np.int64)
    return booked(*_inserted(facts, rows, group, np.array([number for number, _, _ in joined], np.int64)))


def _inserted(facts: RankFacts, rows: dict[str, Array], group: Array, seq: Array) -> tuple[RankFacts, Array]:
    """The rank with rendezvous of these times, and their rows of COMMS."""
    last_track = max(int(table["track"].max(initial=-1)) for table in (facts.device_ops, facts.comms))
    fixed = {**rows, "track": last_track + 1, "name": len(facts.strings) - 1, "size_bytes": NULL}
    ops = DEVICE_OPS.table(
        {
            **fixed,
            "work": Work.COMM,
            "thread": NULL if facts.main_thread is None else facts.main_thread,
            "operator": NO_STRING,
            "shape": NO_STRING,
            "comm": NULL,
        }
    )
    comms = COMMS.table(
        {
            **fixed,
            "op": OP_CODE[INFERRED],
            "group": group,
            "seq": seq,
            "in_bytes": NULL,
            "dtype": NO_STRING,
            "device_op": NULL,
        }
    )
    return inserted(facts, ops, comms)


def inserted(facts: RankFacts, ops: Table, comms: Table) -> tuple[RankFacts, Array]:
    """The rank with more communications, each with its device operation, and their rows of COMMS; tables stay in the
    order of start.
    """
    number = np.arange(len(comms))
    ops = ops.replace(comm=number + len(facts.comms))
    comms = comms.replace(device_op=number + len(facts.device_ops))
    all_ops, op_row = _by_start(concat(DEVICE_OPS, [facts.device_ops, ops]))
    all_comms, comm_row = _by_start(concat(COMMS, [facts.comms, comms]))
    longer = replace(
        facts,
        device_ops=all_ops.replace(comm=_moved(all_ops["comm"], comm_row)),
        comms=all_comms.replace(device_op=_moved(all_comms["device_op"], op_row)),
        messages=facts.messages.replace(comm=_moved(facts.messages["comm"], comm_row)),
        exposed=facts.exposed.replace(comm=_moved(facts.exposed["comm"], comm_row)),
        gaps=facts.gaps.replace(next_op=_moved(facts.gaps["next_op"], op_row)),
    )
    return longer, np.sort(comm_row[len(facts.comms) :])


def _by_start(table: Table) -> tuple[Table, Array]:
    """The table in the order of start, and the new position of each row."""
    order = np.argsort(table["start_ns"], kind="stable")
    return table.take(order), np.argsort(order)


def _moved(rows: Array, to: Array) -> Array:
    """Rows of a table by their new positions `to`; NULL stays."""
    return np.append(to, NULL)[np.where(rows == NULL, -1, rows)]


def booked(facts: RankFacts, rows: Array) -> RankFacts:
    """The rank with its idle time in some rows of COMMS booked as exposed communication instead of gaps."""
    gaps = facts.gaps
    spans = facts.comms.bounds_of(rows)
    if not len(gaps):  # a device that is never idle waits for nobody
        return facts
    is_idle = gaps["cause"] != CAUSE_CODE["memcpy"]
    idle = gaps.take(is_idle)
    start, end, row, _ = intervals.intersect_rows(spans, intervals.union(*idle.bounds))
    exposed = EXPOSED.table({"comm": rows[row], "start_ns": start, "end_ns": end})
    others = intervals.complement(spans, int(gaps["start_ns"].min()), int(gaps["end_ns"].max()))
    left_start, left_end, of, _ = intervals.intersect_rows(idle.bounds, others)
    rest = idle.take(of).replace(start_ns=left_start, end_ns=left_end)
    exposed, gaps = concat(EXPOSED, [facts.exposed, exposed]), concat(GAPS, [gaps.take(~is_idle), rest])
    return replace(facts, exposed=exposed.ordered(), gaps=gaps.ordered())

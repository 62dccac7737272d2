"""Facts of a CPU rank: its training thread and its backward thread are the device.

Operators are compute, but for Python in them. A communication lasts from its call (the rank's arrival) to the end of
its execution on the backend's thread. Fetching a batch in the training process is loading, whatever operators it runs.
The rest of the thread's time is Python between operators.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.cpu.operators import LIBRARY, first_elements, outermost_operators, shapes_of, waits_of
from ddprof.analyzers.facts.device import lookup
from ddprof.analyzers.facts.gaps import exposed_comm, find_gaps
from ddprof.analyzers.facts.host import host_spans
from ddprof.analyzers.facts.model import COMMS, DEVICE_OPS, MESSAGES, NO_STRING, SPANS, of_cause
from ddprof.analyzers.facts.names import (
    ENGINE,
    OP_CODE,
    PIPELINE_GROUP,
    POINT_TO_POINT,
    collective_op,
    is_comm_annotation,
    matches,
    rows_of,
    times,
)
from ddprof.analyzers.facts.stepping.steps import step_marks
from ddprof.causes import HOST_OCCUPANTS
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table

_CALL = re.compile(r"^c10d::(?!.*wait)", re.IGNORECASE)
# A backend that builds one collective of another records the other's name (gloo runs reduce_scatter as all_reduce).
_SHOWN_AS = {OP_CODE["reduce_scatter"]: (OP_CODE["all_reduce"],)}
EARLY_NS = 300_000  # an execution may be stamped this long before its call: threads are stamped independently
CREATED_NS = 200_000  # a flight-recorder entry is stamped within this of its call
QUEUE_NS = 1_000_000  # the backend's thread begins the next queued operation within this
BUSY_SHARE = 0.02  # of all operators; a thread that runs fewer is no training thread
_NODE = re.compile(
    rf"^(?:{ENGINE})?(?:torch::autograd::)?"
    r"(?!.*(?:Compiled|Inductor|Dynamo|Triton))[A-Za-z_]\w*$"
)
# An eager operator costs its host 5 to 20 us, some hundred us while stacks are recorded.
LEAST_NS = 1_000_000


def cpu_facts(trace: RankTrace, steps: Table, main: int) -> dict[str, Table]:
    """Tables of RankFacts by name: comms, messages, exposed, gaps, host_spans, host_work and host_operators."""
    threads = training_threads(trace, main)
    spans = host_spans(trace, threads, DEVICE_OPS.empty(), step_marks(steps))
    collectives, call = _comms(trace, threads)
    comms, messages = cpu_messages(trace, collectives, call)
    occupied = intervals.union(*of_cause(spans, *HOST_OCCUPANTS).bounds)
    work = _operators(trace, threads, collectives, call)
    python = intervals.merge(*(python_inside(trace, thread) for thread in threads.tolist()))
    work = intervals.subtract(work, intervals.merge(occupied, python))
    held, of = holding(comms, work)
    exposed = exposed_comm(held, work)
    return {
        "comms": comms,
        "messages": messages,
        "host_spans": spans,
        "host_work": SPANS.table({"start_ns": work[0], "end_ns": work[1]}),
        "host_operators": outermost_operators(trace, threads, occupied, python),
        "exposed": exposed.replace(comm=of[exposed["comm"]]),
        "gaps": find_gaps(DEVICE_OPS.empty(), spans, step_marks(steps), intervals.union(*held.bounds), work),
    }


def training_threads(trace: RankTrace, main: int) -> Array:
    """The thread with the step marks, and others that run at least BUSY_SHARE of the operators; none of a backend."""
    events = trace.events
    operators = events["kind"] == Kind.CPU_OP
    tracks, counts = np.unique(events["track"][operators], return_counts=True)
    comm = (events["kind"] == Kind.ANNOTATION) & is_comm_annotation(trace.strings)[events["name"]]
    backend = np.setdiff1d(np.unique(events["track"][comm]), [main])
    busy = tracks[counts > BUSY_SHARE * counts.sum()] if len(counts) else tracks
    return np.union1d(np.setdiff1d(busy, backend), [main]).astype(np.int64)


def _operators(trace: RankTrace, threads: Array, comms: Table, call: Array) -> Intervals:
    """Intervals in which an operator computes on a training thread.

    Waits inside calls of the communication library are excluded, but not operators that the library runs meanwhile,
    such as copies.
    """
    events = trace.events
    operators = (events["kind"] == Kind.CPU_OP) & ~matches(LIBRARY, trace.strings)[events["name"]]
    start, end = times(events)
    computing = []
    for thread in threads.tolist():
        on_thread = operators & (events["track"] == thread)
        waits = waits_of(trace, thread, comms, call)
        at = np.searchsorted(waits[0], start, side="right") - 1
        within = np.append(waits[1], NULL)[at] >= end  # of the last wait that began before; NULL where none did
        around, inside = np.flatnonzero(on_thread & ~within), np.flatnonzero(on_thread & within)
        computing.append(intervals.subtract(intervals.union(start[around], end[around]), waits))
        computing.append((start[inside], end[inside]))
    return intervals.union(*(np.concatenate(ends) for ends in zip(*computing, strict=True)))


def _comms(trace: RankTrace, threads: Array) -> tuple[Table, Array]:
    """COMMS, and the event row of each communication's call; -1 where no call was recorded."""
    events, code = trace.events, np.array([collective_op(s) for s in trace.strings], np.int64)
    executed = rows_of(trace, Kind.ANNOTATION, is_comm_annotation(trace.strings) & (code > 0))
    called = rows_of(trace, Kind.CPU_OP, matches(_CALL, trace.strings) & (code > 0), threads)
    elements = _elements(trace, called), _elements(trace, executed)
    call = _pair(events["ts_ns"], code[events["name"]], called, executed, *elements)
    has_call = call >= 0
    (called_ns, returned_ns), (begun_ns, end) = times(events, call), times(events, executed)
    queued = _queued(trace, executed, np.where(has_call, called_ns, begun_ns), end)
    queued &= ~np.isin(code[events["name"][executed]], POINT_TO_POINT)
    start = np.where(has_call & ~queued, called_ns, begun_ns)
    in_bytes = np.append(trace.collectives["in_bytes"], NULL)[  # row -1 is none
        lookup(trace.collectives["row"], np.arange(len(trace.collectives)), executed)
    ]
    group, seq = _recorded(trace, call, has_call)
    comms = COMMS.table(
        {
            "op": np.where(has_call, code[events["name"][call]], code[events["name"][executed]]),
            "group": group,
            "seq": seq,
            "start_ns": np.minimum(start, end),
            "end_ns": end,
            "launch_ns": np.where(has_call, called_ns, NULL),
            "launch_end_ns": np.where(has_call, returned_ns, NULL),
            "size_bytes": in_bytes,
            "in_bytes": in_bytes,
            "dtype": NO_STRING,
            "name": events["name"][executed],
            "device_op": NULL,
            "track": events["track"][executed],
        }
    )
    order = np.argsort(start, kind="stable")
    return comms.take(order), call[order]


def _queued(trace: RankTrace, executed: Array, called_ns: Array, end_ns: Array) -> Array:
    """Mask of operations queued behind an earlier one on the backend's thread; they arrive when it starts them."""
    track, begun = trace.events["track"][executed], trace.events["ts_ns"][executed]
    order = np.lexsort((begun, track))
    busy_until = np.full(len(executed), NULL)
    same = track[order][1:] == track[order][:-1]
    busy_until[order[1:][same]] = end_ns[order[:-1][same]]
    queued: Array = (busy_until != NULL) & (busy_until > called_ns) & (begun - busy_until < QUEUE_NS)
    return queued


def _pair(ts_ns: Array, code: Array, called: Array, executed: Array, of_called: Array, of_executed: Array) -> Array:
    """Event row of the call of each execution, first in, first out per operation; -1 for none.

    `of_called`, `of_executed`: elements of their tensors, NULL where not recorded. As a backend with several threads
    may run a small collective before an earlier large one, calls pair within one size where all sizes are known.
    """
    result = np.full(len(executed), -1, np.int64)
    shown = set(np.unique(code[executed]).tolist())
    for op in np.unique(code[executed]).tolist():
        accepted = [op, *(o for o, names in _SHOWN_AS.items() if op in names and o not in shown)]
        calls, of_op = np.flatnonzero(np.isin(code[called], accepted)), np.flatnonzero(code[executed] == op)
        sizes = np.unique(of_executed[of_op])
        if NULL in sizes or not np.array_equal(sizes, np.unique(of_called[calls])):
            _in_turn(result, ts_ns, called[calls], executed, of_op)
            continue
        for size in sizes.tolist():
            of_size = of_op[of_executed[of_op] == size]
            _in_turn(result, ts_ns, called[calls[of_called[calls] == size]], executed, of_size)
    return result


def _in_turn(result: Array, ts_ns: Array, calls: Array, executed: Array, rows: Array) -> None:
    """Pair some executions (`rows` of `result`) with calls (event rows) in FIFO order."""
    calls = calls[np.argsort(ts_ns[calls], kind="stable")]
    following = 0
    for row in rows[np.argsort(ts_ns[executed[rows]], kind="stable")].tolist():
        if following < len(calls) and ts_ns[calls[following]] <= ts_ns[executed[row]] + EARLY_NS:
            result[row] = calls[following]
            following += 1


def _elements(trace: RankTrace, rows: Array) -> Array:
    """Elements of the first tensor of some events; NULL where shapes were not recorded."""
    shape = shapes_of(trace, rows)
    elements = np.full(len(rows), NULL)
    for number in np.unique(shape[shape != NO_STRING]).tolist():
        count = first_elements(trace.strings[number])
        elements[shape == number] = NULL if count is None else count
    return elements


def _recorded(trace: RankTrace, call: Array, has_call: Array) -> tuple[Array, Array]:
    """Process group and sequence number of each call, from the flight-recorder entry created inside it."""
    group, seq = np.full(len(call), NO_STRING, np.int64), np.full(len(call), NULL)
    timed = [(e.time_created_ns, e) for e in trace.flight_recorder if e.time_created_ns and not e.is_p2p]
    timed.sort(key=lambda item: item[0])
    if not timed:
        return group, seq
    created = np.array([at_ns for at_ns, _ in timed], np.int64)
    index = {g.name: i for i, g in enumerate(trace.process_groups)}
    events, used = trace.events, -1
    for row in np.flatnonzero(has_call)[np.argsort(events["ts_ns"][call[has_call]], kind="stable")].tolist():
        begin = int(events["ts_ns"][call[row]])
        end = begin + int(events["dur_ns"][call[row]])
        at = max(int(np.searchsorted(created, begin - CREATED_NS)), used + 1)
        if at < len(created) and created[at] <= end + CREATED_NS:
            name, number = timed[at][1].process_group[:1], timed[at][1].collective_seq_id
            group[row] = index.get("".join(name), NO_STRING)
            seq[row] = NULL if number is None else number
            used = at
    return group, seq


def python_inside(trace: RankTrace, thread: int) -> Intervals:
    """Intervals in which the innermost operator is an autograd node for longer than a dispatch takes: Python.

    That is a backward hook or a custom autograd function: computing operators are named "library::operator", and a node
    by itself takes the engine a few microseconds. Compiled regions compute by themselves.
    """
    events = trace.events
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["track"] == thread) & (events["dur_ns"] > 0))
    is_node = matches(_NODE, trace.strings)[events["name"][rows]]
    if not is_node.any():
        return intervals.EMPTY
    begun, ended = times(events, rows)
    ended, parent, _ = intervals.nested(begun, ended)
    start, end, row = intervals.innermost(begun, ended, parent)
    is_node[np.setdiff1d(np.arange(len(rows)), parent)] = False  # which calls nothing may compute itself
    keep = is_node[row] & (end - start >= LEAST_NS)
    return start[keep], end[keep]


def cpu_messages(trace: RankTrace, comms: Table, calls: Array) -> tuple[Table, Table]:
    """COMMS with the groups of messages, and MESSAGES: the peer of each, and the time it blocked its thread.

    An operator of c10d starts the transfer and returns. The backend's range ("gloo:send") lasts until the work object
    has been waited for, which may be long after the message arrived. So a message holds its rank during the call, and
    from the last thing that its thread did before the range ended to that end.

    `calls`: event row of each communication's call, -1 where unknown. A call with an unknown peer (receive from any
    rank, inputs not recorded) gives no message.
    """
    rows = np.flatnonzero(np.isin(comms["op"], POINT_TO_POINT))
    table = trace.message_calls
    at = lookup(table["row"], np.arange(len(table)), calls[rows])
    rows, at = rows[at >= 0], at[at >= 0]
    peer = table["peer"][at]
    group = _group_of(trace, peer)
    column = comms["group"].copy()
    column[rows] = group
    return comms.replace(group=column), MESSAGES.table(
        {
            "comm": rows,
            "is_send": comms["op"][rows] == OP_CODE["send"],
            "peer": _as_ranks(peer, trace.process_groups[group].ranks if group != NO_STRING else ()),
            "group": group,
            "size_bytes": comms["size_bytes"][rows],
            "tag": table["tag"][at],
            "called_ns": NULL,
            "is_lost": False,
        }
    )


def _group_of(trace: RankTrace, peer: Array) -> int:
    """The process group of the messages; NO_STRING for the world.

    Calls do not name it: it is the group that holds this rank and all peers; among several, the one named for
    pipelines.
    """
    needed = int(peer.max(initial=-1)) + 1
    every, me = trace.process_groups, trace.identity.rank
    groups = [g for g, group in enumerate(every) if me in group.ranks and len(group.ranks) >= max(needed, 2)]
    if len(groups) > 1:
        named = [g for g in groups if PIPELINE_GROUP.search(f"{every[g].name} {every[g].description}")]
        groups = named or [g for g in groups if len(every[g].ranks) == trace.identity.world_size]
    return groups[0] if len(groups) == 1 else NO_STRING


def _as_ranks(place: Array, members: tuple[int, ...]) -> Array:
    """World ranks of positions in a group; unchanged where the group's members are unknown."""
    if not members:
        return place
    is_known = place != NULL
    result = place.copy()
    result[is_known] = np.array(members, np.int64)[place[is_known]]
    return result


def holding(comms: Table, work: Intervals) -> tuple[Table, Array]:
    """COMMS with the stretches in which each communication blocks its rank, and the row of `comms` of each stretch.

    A collective blocks throughout. A message blocks during its call, and from the last operator (`work`), message call
    or end of another message before its end to that end: a thread waits for one after the other.
    """
    message = np.isin(comms["op"], POINT_TO_POINT) & (comms["launch_ns"] != NULL)
    rows = np.flatnonzero(message)
    start, end = comms["start_ns"].copy(), comms["end_ns"]
    called = np.minimum(comms["launch_end_ns"][rows], end[rows])
    since = _last_before(np.sort(comms["launch_ns"][rows]), end[rows]), _idle_since(work, end[rows])
    start[rows] = np.maximum.reduce((start[rows], *since, _last_before(np.sort(end[rows]), end[rows] - 1)))
    start, end = np.append(start, comms["start_ns"][rows]), np.append(end, called)
    of = np.append(np.arange(len(comms)), rows)
    return comms.take(of).replace(start_ns=start, end_ns=end), of


def _last_before(instants: Array, at_ns: Array) -> Array:
    """The last of the sorted instants at or before each of `at_ns`; NULL where there is none."""
    return np.append(instants, NULL)[np.searchsorted(instants, at_ns, side="right") - 1]


def _idle_since(work: Intervals, at_ns: Array) -> Array:
    """The time since when no `work` has run, for each instant; the instant itself during work."""
    since = _last_before(work[1], at_ns)
    begun = _last_before(work[0], at_ns - 1)
    return np.where(begun > since, at_ns, since)

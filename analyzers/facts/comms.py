"""Communication of one rank: operation, group, sequence number and bytes per kernel; messages per send/recv."""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import lookup
from ddprof.analyzers.facts.model import COMMS, MESSAGES, NO_STRING, Work
from ddprof.analyzers.facts.names import (
    OP_CODE,
    POINT_TO_POINT,
    collective_op,
    is_comm_annotation,
    is_launch,
    matches,
    rows_of,
    times,
)
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table

_GATHER = OP_CODE["all_gather"]
_COALESCED = re.compile(r"^(?:[a-z]ccl:)?coalesced$")
_C10D = re.compile(r"^c10d::")
LOST, COALESCED = -2, -3  # in place of the kernel of a call
_CALL = re.compile(r"^c10d::(send|recv_?)$")
_NAMED = re.compile(r"^\w+:(?:send|recv) (\d+)(?:->|<-)(\d+)$")


def device_comms(trace: RankTrace, ops: Table, rows: Array) -> tuple[Table, Table, Table]:
    """Return DEVICE_OPS with column `comm` filled in, COMMS and MESSAGES. `rows`: event row of each operation."""
    at = np.flatnonzero(ops["work"] == Work.COMM)
    if not len(at):
        return ops, COMMS.empty(), MESSAGES.empty()
    args = _argument_rows(trace, rows[at], ops["launch_ns"][at], ops["thread"][at])
    op = _operation(trace, ops, at, args)

    def column(name: str, default: int) -> Array:
        return np.append(trace.collectives[name].astype(np.int64), default)[args]  # row -1 is none

    sent = column("in_bytes", NULL)
    comms = COMMS.table(
        {
            "op": op,
            "group": column("group", NO_STRING),
            "seq": column("seq", NULL),
            "start_ns": ops["start_ns"][at],
            "end_ns": ops["end_ns"][at],
            "launch_ns": ops["launch_ns"][at],
            "launch_end_ns": ops["launch_end_ns"][at],
            # As nccl-tests counts it: the output of an all-gather, the input of everything else.
            "size_bytes": np.where((op == _GATHER) | (sent == NULL), column("out_bytes", NULL), sent),
            "in_bytes": sent,
            "dtype": column("dtype", NO_STRING),
            "name": ops["name"][at],
            "device_op": at,
            "track": ops["track"][at],
        }
    )
    comm_column = ops["comm"].copy()
    comm_column[at] = np.arange(len(at))
    return ops.replace(comm=comm_column), comms, _messages(trace, comms, args, rows[at])


def _argument_rows(trace: RankTrace, events: Array, launch_ns: Array, thread: Array) -> Array:
    """Row of the collectives table for each kernel: its own, its operator's, or that of the call around its launch; -1
    for none.
    """
    table = trace.collectives
    rows, external = lookup(table["row"], np.arange(len(table)), events), trace.events["external_id"]
    if len(table):
        by_id = lookup(external[table["row"]], np.arange(len(table)), external[events])
        rows = np.where(rows < 0, by_id, rows)
        rows = np.where(rows < 0, _spanning(trace, table["row"], launch_ns, thread), rows)
    return rows


def _spanning(trace: RankTrace, candidates: Array, at_ns: Array, thread: Array) -> Array:
    """Index into `candidates` (event rows) of the last one on the thread that contains the instant; -1 for none."""
    events, result = trace.events, np.full(len(at_ns), -1, np.int64)
    for track in np.unique(thread[thread != NULL]):
        on_thread = np.flatnonzero(events["track"][candidates] == track)
        asked = np.flatnonzero((thread == track) & (at_ns != NULL))
        if not len(on_thread) or not len(asked):
            continue
        start, end = times(events, candidates[on_thread])
        order = np.lexsort((-end, start))
        start, end = start[order], end[order]
        _, outer, _ = intervals.nested(start, end)
        at = np.searchsorted(start, at_ns[asked], side="right") - 1
        while (ended := (at >= 0) & (end[at] < at_ns[asked])).any():
            at[ended] = outer[at[ended]]
        result[asked[at >= 0]] = on_thread[order[at[at >= 0]]]
    return result


def _operation(trace: RankTrace, ops: Table, at: Array, args: Array) -> Array:
    """Canonical operation of each kernel: by its arguments, else the range around its launch, else its name."""
    code_of = np.fromiter((collective_op(s) for s in trace.strings), np.int64, len(trace.strings))
    by_name = code_of[ops["name"][at]]
    ranges = rows_of(trace, Kind.ANNOTATION, is_comm_annotation(trace.strings))
    annotations = np.union1d(ranges, rows_of(trace, Kind.CPU_OP, matches(_C10D, trace.strings)))
    around = _spanning(trace, annotations, ops["launch_ns"][at], ops["thread"][at])
    # NCCL runs all_to_all as SendRecv kernels: only the call above them says which it is.
    call = np.append(trace.events["name"][annotations], -1)[around]  # row -1 is none
    stated = np.append(trace.collectives["op"], -1)[args]
    by_call, by_args = (np.append(code_of, OP_CODE["unknown"])[names] for names in (call, stated))
    op = np.where(by_args > 0, by_args, np.where(by_call > 0, by_call, by_name))
    # "coalesced" alone may be several collectives, or messages: then the kernel's own name says which.
    is_coalesced = np.append(matches(_COALESCED, trace.strings), False)
    vague = (op != by_name) & (by_name > 0) & is_coalesced[np.where(by_args > 0, stated, call)]
    op = np.where(vague, by_name, op)
    return np.where(np.isin(op, POINT_TO_POINT), OP_CODE["send_recv"], op)


def _messages(trace: RankTrace, comms: Table, args: Array, events: Array) -> Table:
    """MESSAGES. `events`: event row of each communication's kernel."""
    p2p = np.flatnonzero(np.isin(comms["op"], POINT_TO_POINT))
    table = trace.collectives
    if not len(p2p):
        return MESSAGES.empty()
    if not len(table):
        return named_messages(trace, comms)
    ops, op_of_row = np.unique(table["op"], return_inverse=True)
    code = np.array([collective_op(trace.strings[name]) for name in ops.tolist()], np.int64)[op_of_row]
    is_call = trace.events["kind"][table["row"]] != Kind.KERNEL
    calls = np.flatnonzero(is_call & np.isin(code, (OP_CODE["send"], OP_CODE["recv"])))
    if not len(calls):  # kernel arguments only
        described = p2p[args[p2p] >= 0]
        return _message_table(table, args[described], described, code, NULL, False)
    calls = calls[np.argsort(trace.events["ts_ns"][table["row"][calls]], kind="stable")]
    launched = _own_kernels(trace, table["row"][calls], p2p, events[p2p])
    called_ns = trace.events["ts_ns"][table["row"][calls]]
    owner, lost = np.full(len(calls), -1, np.int64), np.zeros(len(calls), bool)
    for group in np.unique(table["group"][calls]):
        of_group = np.flatnonzero(table["group"][calls] == group)
        kernels = p2p[(comms["group"][p2p] == group) & (comms["launch_ns"][p2p] != NULL)]
        kernels = kernels[np.argsort(comms["launch_ns"][kernels], kind="stable")]
        launch_ns = comms["launch_ns"][kernels]
        owner[of_group], lost[of_group] = _carriers(launched[of_group], called_ns[of_group], kernels, launch_ns)
    kept = owner >= 0
    return _message_table(table, calls[kept], owner[kept], code, called_ns[kept], lost[kept])


def _own_kernels(trace: RankTrace, calls: Array, p2p: Array, kernels: Array) -> Array:
    """The communication that each call launched; LOST where its kernel was not recorded, COALESCED where it launched
    none. `calls`, `kernels`: event rows; `kernels` of the communications `p2p`.
    """
    external = trace.events["external_id"]
    launches = rows_of(trace, Kind.RUNTIME, is_launch(trace.strings))
    call_ids = np.where(external[calls] > 0, external[calls], NULL)
    kernel = lookup(external[kernels], p2p, call_ids)
    launched = lookup(external[launches], launches, call_ids) >= 0
    return np.where(kernel >= 0, kernel, np.where(launched, LOST, COALESCED))


def _carriers(launched: Array, called_ns: Array, kernels: Array, launch_ns: Array) -> tuple[Array, Array]:
    """The communication that carries each call of a group, and whether it was lost: then the next one, -1 for none.
    `kernels` are in launch order.

    A coalesced call travels with the next kernel of its group, or with the next call that has or lost one, if that
    comes before the kernel.
    """
    after = np.searchsorted(launch_ns, called_ns)
    last = np.append(kernels, -1)[after]
    last_ns = np.append(launch_ns, np.iinfo(np.int64).max)[after]
    alone = np.where(launched == COALESCED, len(launched), np.arange(len(launched)))
    following = np.minimum.accumulate(alone[::-1])[::-1]
    sooner = (following < len(launched)) & (np.append(called_ns, 0)[following] <= last_ns)
    carrier = np.where(sooner, np.append(launched, LOST)[following], last)
    return np.where(carrier == LOST, last, carrier), carrier == LOST


def _message_table(
    table: Table, args: Array, owner: Array, code: Array, called_ns: Array | int, lost: Array | bool
) -> Table:
    is_send = code[args] == OP_CODE["send"]
    return MESSAGES.table(
        {
            "comm": owner,
            "is_send": is_send,
            "peer": np.where(is_send, table["dst"][args], table["src"][args]),
            "group": table["group"][args],
            "size_bytes": table["in_bytes"][args],
            "tag": NULL,  # NCCL has none
            "called_ns": called_ns,
            "is_lost": lost,
        }
    )


def named_messages(trace: RankTrace, comms: Table) -> Table:
    """MESSAGES of a trace without collective arguments (before PyTorch 2.1), from names; empty where peers are unknown,
    or names count ranks differently than the job.

    Peers are read from the ranges inside the calls, "nccl:send 0->1" and "nccl:recv 0<-1". The range of a coalesced
    pair ("nccl:coalesced") names no peer. A pipeline stage has at most two, and exchanges equally many messages with
    each, first with the next stage (1F1B's steady state): coalesced pairs are assigned to them in turn. Where the
    counts contradict that, no message is reported.
    """
    calls = rows_of(trace, Kind.CPU_OP, matches(_CALL, trace.strings))
    kernels = np.flatnonzero(np.isin(comms["op"], POINT_TO_POINT) & (comms["launch_ns"] != NULL))
    kernels = kernels[np.argsort(comms["launch_ns"][kernels], kind="stable")]
    owner = np.searchsorted(comms["launch_ns"][kernels], trace.events["ts_ns"][calls])
    calls, owner = calls[owner < len(kernels)], owner[owner < len(kernels)]
    if not len(calls):
        return MESSAGES.empty()
    is_send = np.array(["send" in s for s in trace.strings])[trace.events["name"][calls]]
    me, peer = _peers(trace, calls)
    completed = _completed(peer, is_send, owner)
    if completed is None or me != trace.identity.rank:
        return MESSAGES.empty()
    return MESSAGES.table(
        {
            "comm": kernels[owner],
            "is_send": is_send,
            "peer": completed,
            "group": NO_STRING,
            **dict.fromkeys(("size_bytes", "tag", "called_ns"), NULL),
            "is_lost": False,
        }
    )


def _peers(trace: RankTrace, calls: Array) -> tuple[int | None, Array]:
    """This rank's number in the names, and the peer of each call; NULL where no range inside the call names one."""
    ranges = rows_of(trace, Kind.ANNOTATION, matches(_NAMED, trace.strings))
    peer = np.full(len(calls), NULL)
    if not len(ranges):
        return None, peer
    parsed = [_NAMED.match(trace.strings[n]) for n in trace.events["name"][ranges]]
    own_rank, other = (np.array([int(f[i]) for f in parsed if f], np.int64) for i in (1, 2))
    at = np.searchsorted(trace.events["ts_ns"][ranges], trace.events["ts_ns"][calls])
    inside = np.minimum(at, len(ranges) - 1)
    named = (at < len(ranges)) & (trace.events["ts_ns"][ranges[inside]] <= times(trace.events, calls)[1])
    peer[named] = other[inside[named]]
    return (int(own_rank[0]) if (own_rank == own_rank[0]).all() else None), peer


def _turns(unnamed: Array, owner: Array) -> Array:
    """Index of each coalesced kernel in its run of coalesced kernels, which named calls end; shape (calls,)."""
    fresh = np.ones(len(owner), bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | ~unnamed[:-1]
    count = np.cumsum(fresh & unnamed)
    before_run = np.maximum.accumulate(np.where(unnamed, 0, count))
    return np.asarray(count - before_run - 1)


def _completed(peer: Array, is_send: Array, owner: Array) -> Array | None:
    """Peers, including those of coalesced pairs; None where they are unknown."""
    peers = np.unique(peer[peer != NULL])
    unnamed = peer == NULL
    if not unnamed.any():
        return peer
    if not 1 <= len(peers) <= 2:
        return None
    result = peer.copy()
    result[unnamed] = peers[::-1][_turns(unnamed, owner)[unnamed] % len(peers)]
    for way in (is_send, ~is_send):
        counts = [int((way & (result == p)).sum()) for p in peers]
        if len(set(counts)) > 1:
            return None
    return result

"""Point-to-point messages of traces without collective arguments (before PyTorch 2.1).

Peers are read from the ranges inside the calls, "nccl:send 0->1" and "nccl:recv 0<-1". The range of a coalesced pair
("nccl:coalesced") names no peer. A pipeline stage has at most two, and exchanges equally many messages with each, first
with the next stage (1F1B's steady state): coalesced pairs are assigned to them in turn. Where the counts contradict
that, no message is reported.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.facts.events import rows_of, times
from ddprof.analyzers.facts.model import MESSAGES, NO_STRING
from ddprof.analyzers.facts.names import POINT_TO_POINT, matches
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table

_CALL = re.compile(r"^c10d::(send|recv_?)$")
_NAMED = re.compile(r"^\w+:(?:send|recv) (\d+)(?:->|<-)(\d+)$")


def named_messages(trace: RankTrace, comms: Table) -> Table:
    """MESSAGES from names; empty where peers are unknown, or names count ranks differently than the job."""
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

"""Point-to-point messages of traces without collective arguments (before PyTorch 2.1): from the calls and the names of
the ranges inside them, "nccl:send 0->1" and "nccl:recv 0<-1".

A coalesced pair names no peer ("nccl:coalesced"). A pipeline stage has at most two, and exchanges as much with either,
the next stage first (1F1B's steady state); where the counts contradict that, nothing is said.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.facts.model import MESSAGES, NO_STRING
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table

_CALL = re.compile(r"^c10d::(send|recv_?)$")
_NAMED = re.compile(r"^\w+:(?:send|recv) (\d+)(?:->|<-)(\d+)$")


def named_messages(trace: RankTrace, comms: Table) -> Table:
    """MESSAGES by the names of calls; empty where peers cannot be told, or are not numbered as in the world."""
    calls = _rows(trace, Kind.CPU_OP, _CALL)
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
            "group": np.full(len(calls), NO_STRING),
            "size_bytes": np.full(len(calls), NULL),
            "tag": np.full(len(calls), NULL),
        }
    )


def _rows(trace: RankTrace, kind: Kind, pattern: re.Pattern[str]) -> Array:
    """Events of the kind whose name matches, in order of time."""
    named = np.array([pattern.match(s) is not None for s in trace.strings] or [False])
    rows = np.flatnonzero((trace.events["kind"] == kind) & named[trace.events["name"]])
    return rows[np.argsort(trace.events["ts_ns"][rows], kind="stable")]


def _peers(trace: RankTrace, calls: Array) -> tuple[int | None, Array]:
    """Our own number in the names, and the peer of each call; NULL where no range inside it names one."""
    ranges = _rows(trace, Kind.ANNOTATION, _NAMED)
    peer = np.full(len(calls), NULL)
    if not len(ranges):
        return None, peer
    found = [_NAMED.match(trace.strings[n]) for n in trace.events["name"][ranges]]
    own, other = (np.array([int(f[i]) for f in found if f], np.int64) for i in (1, 2))
    at = np.searchsorted(trace.events["ts_ns"][ranges], trace.events["ts_ns"][calls])
    inside = np.minimum(at, len(ranges) - 1)
    ends = trace.events["ts_ns"][calls] + trace.events["dur_ns"][calls]
    named = (at < len(ranges)) & (trace.events["ts_ns"][ranges[inside]] <= ends)
    peer[named] = other[inside[named]]
    return (int(own[0]) if (own == own[0]).all() else None), peer


def _turns(unnamed: Array, owner: Array) -> Array:
    """Place of each coalesced kernel among those that follow one another without a named call between them."""
    fresh = np.ones(len(owner), bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | ~unnamed[:-1]
    count = np.cumsum(fresh & unnamed)
    before_run = np.maximum.accumulate(np.where(unnamed, 0, count))
    return np.asarray(count - before_run - 1)


def _completed(peer: Array, is_send: Array, owner: Array) -> Array | None:
    """Peers with those of coalesced pairs filled in; None where they cannot be told."""
    known = np.unique(peer[peer != NULL])
    unnamed = peer == NULL
    if not unnamed.any():
        return peer
    if not 1 <= len(known) <= 2:
        return None
    result = peer.copy()
    result[unnamed] = known[::-1][_turns(unnamed, owner)[unnamed] % len(known)]
    for way in (is_send, ~is_send):
        counts = [int((way & (result == p)).sum()) for p in known]
        if len(set(counts)) > 1:
            return None
    return result

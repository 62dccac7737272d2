"""Which operation on another stream each operation had to wait for.

Kineto records that a stream was made to wait, but rarely for what. It is inferred in three ways, in this order:

- A collective waits for the compute launched before it (c10d records an event on the current stream). - The first
kernel after a wait call waits for the communication, of those launched before the call, that ended last. - An operation
that starts right when an operation of another stream ends, with nothing else to hold it, waited for that.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.replay.model import NEVER
from ddprof.tables import NULL, Array

TOLERANCE_NS = 1_000  # timestamps of different streams may disagree by this much
# Where an operation idled, what ended up to this long after its start may have released it: coarse timelines round.
OVERLAP_NS = 6_000
OVERLAP_WITHOUT_HOST_NS = 50_000
COINCIDENCE_NS = 25_000  # an event wait releases the next kernel within this
HELD_NS = 15_000  # idle longer than this although launched: something held it


def find_dependencies(facts: RankFacts, base: dict[str, Array]) -> Array:
    """For each operation (stream order) the index of its cross-stream dependency, -1 where there is none."""
    count = len(base["start"])
    dep = np.full(count, -1, np.int64)
    if not count or not facts.is_device_rank:
        return dep
    end = base["start"] + base["dur"]
    _comm_after_compute(base, end, dep)
    _compute_after_wait(facts, base, end, dep)
    without_host = not bool((facts.device_ops["launch_ns"] != NULL).any())
    _coincident(base, end, dep, OVERLAP_WITHOUT_HOST_NS if without_host else OVERLAP_NS)
    if without_host:
        _last_before(base, end, dep)
    return dep


def previous_end(base: dict[str, Array]) -> Array:
    """End of the operation before on the same stream (rows in stream order), ns; NEVER for the first."""
    end = base["start"] + base["dur"]
    previous = np.full(len(end), NEVER)
    same = base["track"][1:] == base["track"][:-1]
    previous[1:][same] = end[:-1][same]
    return previous


def _last_before(base: dict[str, Array], end: Array, dep: Array) -> None:
    """Without host calls an idle operation followed whatever ended last on the rank, after host work unseen."""
    previous = previous_end(base)
    idle = np.flatnonzero((dep < 0) & (base["start"] - previous > HELD_NS))
    by_end = np.argsort(end, kind="stable")
    at = np.searchsorted(end[by_end], base["start"][idle], side="right") - 1
    source = by_end[np.maximum(at, 0)]
    valid = (at >= 0) & (end[source] > previous[idle]) & (base["track"][source] != base["track"][idle])
    dep[idle[valid]] = source[valid]


def _comm_after_compute(base: dict[str, Array], end: Array, dep: Array) -> None:
    compute = np.flatnonzero(~base["is_comm"] & ~base["is_copy"] & (base["launch"] != NEVER))
    comm = np.flatnonzero(base["is_comm"] & (base["launch"] != NEVER))
    if not len(compute) or not len(comm):
        return
    compute = compute[np.argsort(base["launch"][compute], kind="stable")]
    at = np.searchsorted(base["launch"][compute], base["launch"][comm]) - 1
    source = compute[np.maximum(at, 0)]
    valid = (
        (at >= 0) & (end[source] <= base["start"][comm] + TOLERANCE_NS) & (base["track"][source] != base["track"][comm])
    )
    dep[comm[valid]] = source[valid]


def _compute_after_wait(facts: RankFacts, base: dict[str, Array], end: Array, dep: Array) -> None:
    """The first kernel after wait calls waits for the last-ending communication launched before the last of them."""
    calls = np.sort(facts.stream_waits["call_ns"])
    compute = np.flatnonzero(~base["is_comm"] & ~base["is_copy"] & (base["launch"] != NEVER))
    comm = np.flatnonzero(base["is_comm"] & (base["launch"] != NEVER))
    if not len(calls) or not len(compute) or not len(comm):
        return
    compute = compute[np.argsort(base["launch"][compute], kind="stable")]
    comm = comm[np.argsort(base["launch"][comm], kind="stable")]
    at = np.searchsorted(base["launch"][compute], calls)
    known = at < len(compute)
    target, last_call = compute[at[known]], calls[known]
    # Later calls before the same kernel replace earlier ones.
    final = np.append(target[1:] != target[:-1], True) if len(target) else np.empty(0, bool)
    for kernel, call in zip(target[final].tolist(), last_call[final].tolist(), strict=True):
        launched = comm[: np.searchsorted(base["launch"][comm], call)]
        done = launched[end[launched] <= base["start"][kernel] + TOLERANCE_NS]
        done = done[-64:]  # communications end nearly in launch order: older ones cannot end last
        if len(done):
            source = done[np.argmax(end[done])]
            if base["track"][source] != base["track"][kernel]:
                dep[kernel] = source


def _coincident(base: dict[str, Array], end: Array, dep: Array, overlap_ns: int) -> None:
    previous = previous_end(base)
    # A dependency that was found before may exist and yet have been met long before the start: what ended right before
    # the start replaces it.
    released = np.where(dep >= 0, end[dep], NEVER)
    free_since = np.maximum(np.maximum(previous, base["launch"]), released)
    held = np.flatnonzero((base["start"] - free_since > HELD_NS) & (free_since != NEVER))
    if not len(held):
        return
    found = np.zeros(len(held), bool)
    by_end = np.argsort(end, kind="stable")
    at = np.searchsorted(end[by_end], base["start"][held] + overlap_ns, side="right") - 1
    for _ in range(4):  # the few operations that ended just before
        source = by_end[np.maximum(at, 0)]
        near = (at >= 0) & (base["start"][held] - end[source] <= COINCIDENCE_NS)
        other = (base["track"][source] != base["track"][held]) & (source != held) & (end[source] > free_since[held])
        take = near & other & ~found
        dep[held[take]] = source[take]
        found |= take
        at = at - 1

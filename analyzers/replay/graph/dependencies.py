"""Dependencies of an operation on a stream, or on the host: what it had to wait for.

Kineto records that a stream was made to wait, but rarely for which event. It is inferred in three ways, in this order:

- A collective waits for the compute launched before it (c10d records an event on the current stream).
- The first kernel after a wait call waits for the communication, of those launched before the call, that ended last.
- An operation that starts right when an operation of another stream ends, with nothing else to hold it, waited for
  that.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.execution.choose import Execution
from ddprof.analyzers.execution.operations import NEVER, Operations
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import is_fetch_from_workers, matches
from ddprof.analyzers.facts.work import blocked_launches, knows_launches
from ddprof.analyzers.replay.model import DEFAULT_PREFETCH, Anchor, Anchors
from ddprof.causes import CAUSE_CODE
from ddprof.tables import Array

TOLERANCE_NS = 1_000  # timestamps of different streams may disagree by this much
# Where an operation idled, what ended up to this long after its start may have released it: coarse timelines round.
OVERLAP_NS = 6_000
OVERLAP_WITHOUT_HOST_NS = 50_000  # likewise, without host calls to tell what else released it
# 1 / 1000 of a long idle stretch: streams of one worker, stamped by the other side of each transfer, disagree by up to
# 0.11 ms in steps of 47 s (StragglerAnalysis, job AR).
OVERLAP_DIVISOR = 1_000
COINCIDENCE_NS = 25_000  # an event wait releases the next kernel within this
RECENT = 64  # communications end nearly in launch order: older ones than so many cannot end last
AT_ONCE = 512  # wait calls looked at together, so that memory does not grow with them
HELD_NS = 15_000  # idle longer than this although launched: something held it


def find_dependencies(facts: RankFacts, ops: Operations) -> Array:
    """Index of each operation's cross-stream dependency (stream order), -1 where there is none."""
    count = len(ops.start_ns)
    dep = np.full(count, -1, np.int64)
    if not count:
        return dep
    end = ops.end_ns
    _comm_after_compute(ops, end, dep)
    _compute_after_wait(facts, ops, end, dep)
    without_host = not knows_launches(facts)
    _coincident(ops, end, dep, OVERLAP_WITHOUT_HOST_NS if without_host else OVERLAP_NS)
    if without_host:
        _last_before(ops, end, dep)
    return dep


def previous_end(ops: Operations) -> Array:
    """End of the operation before on the same stream (rows in stream order), ns; NEVER for the first."""
    end = ops.end_ns
    previous = np.full(len(end), NEVER)
    same = ops.track[1:] == ops.track[:-1]
    previous[1:][same] = end[:-1][same]
    return previous


def _last_before(ops: Operations, end: Array, dep: Array) -> None:
    """Make an operation after idle time depend on whatever ended last on the rank, where no host call was recorded."""
    previous = previous_end(ops)
    idle = np.flatnonzero((dep < 0) & (ops.start_ns - previous > HELD_NS))
    by_end = np.argsort(end, kind="stable")
    at = np.searchsorted(end[by_end], ops.start_ns[idle], side="right") - 1
    source = by_end[np.maximum(at, 0)]
    valid = (at >= 0) & (end[source] > previous[idle]) & (ops.track[source] != ops.track[idle])
    dep[idle[valid]] = source[valid]


def _comm_after_compute(ops: Operations, end: Array, dep: Array) -> None:
    compute = np.flatnonzero(~ops.is_comm & ~ops.is_copy & (ops.launch_ns != NEVER))
    comm = np.flatnonzero(ops.is_comm & (ops.launch_ns != NEVER))
    if not len(compute) or not len(comm):
        return
    compute = compute[np.argsort(ops.launch_ns[compute], kind="stable")]
    at = np.searchsorted(ops.launch_ns[compute], ops.launch_ns[comm]) - 1
    source = compute[np.maximum(at, 0)]
    valid = (at >= 0) & (end[source] <= ops.start_ns[comm] + TOLERANCE_NS) & (ops.track[source] != ops.track[comm])
    dep[comm[valid]] = source[valid]


def _compute_after_wait(facts: RankFacts, ops: Operations, end: Array, dep: Array) -> None:
    """The first kernel after wait calls waits for the last-ending communication launched before the last of them."""
    calls = np.sort(facts.stream_waits["start_ns"])
    compute = np.flatnonzero(~ops.is_comm & ~ops.is_copy & (ops.launch_ns != NEVER))
    comm = np.flatnonzero(ops.is_comm & (ops.launch_ns != NEVER))
    if not len(calls) or not len(compute) or not len(comm):
        return
    compute = compute[np.argsort(ops.launch_ns[compute], kind="stable")]
    comm = comm[np.argsort(ops.launch_ns[comm], kind="stable")]
    at = np.searchsorted(ops.launch_ns[compute], calls)
    is_followed = at < len(compute)
    target, last_call = compute[at[is_followed]], calls[is_followed]
    # Later calls before the same kernel replace earlier ones.
    final = np.append(target[1:] != target[:-1], True) if len(target) else np.empty(0, bool)
    until = np.searchsorted(ops.launch_ns[comm], last_call[final])
    kernels = target[final]
    last = _last_done(end[comm], until, ops.start_ns[kernels] + TOLERANCE_NS)
    source = comm[last]
    valid = (last >= 0) & (ops.track[source] != ops.track[kernels])
    dep[kernels[valid]] = source[valid]


def _last_done(end: Array, until: Array, latest: Array) -> Array:
    """Row before each `until` that ends last, of the RECENT nearest that end by `latest`; -1 for none."""
    last = np.full(len(until), -1)
    for first in range(0, len(until), AT_ONCE):
        rows, by_ns = until[first : first + AT_ONCE, None], latest[first : first + AT_ONCE, None]
        at = rows + np.arange(-2 * RECENT, 0)
        ends = np.where(at >= 0, end[np.maximum(at, 0)], NEVER)
        ends[ends > by_ns] = NEVER
        later = np.cumsum(ends[:, ::-1] != NEVER, axis=1)[:, ::-1]  # ends as recent as each
        ends[later > RECENT] = NEVER
        best = np.argmax(ends, axis=1)[:, None]
        best_end, best_at = np.take_along_axis(ends, best, 1)[:, 0], np.take_along_axis(at, best, 1)[:, 0]
        last[first : first + AT_ONCE] = np.where(best_end != NEVER, best_at, -1)
        for row in np.flatnonzero((later[:, 0] < RECENT) & (at[:, 0] > 0)).tolist():  # many have yet to end
            done = np.flatnonzero(end[: int(rows[row, 0])] <= by_ns[row, 0])[-RECENT:]
            last[first + row] = done[np.argmax(end[done])] if len(done) else -1
    return last


def _coincident(ops: Operations, end: Array, dep: Array, overlap_ns: int) -> None:
    previous = previous_end(ops)
    # A dependency that was found before may exist and yet have been met long before the start: what ended right before
    # the start replaces it.
    released = np.where(dep >= 0, end[dep], NEVER)
    free_since = np.maximum(np.maximum(previous, ops.launch_ns), released)
    is_held = (ops.start_ns - free_since > HELD_NS) & (free_since != NEVER)
    order = np.argsort(end, kind="stable")
    for track in np.unique(ops.track[is_held]).tolist():
        held = np.flatnonzero(is_held & (ops.track == track))
        # Of the other streams alone: short operations that follow the held one end within the tolerance, too.
        by_end = order[ops.track[order] != track]
        if not len(by_end):
            continue
        is_bound = np.zeros(len(held), bool)
        overlap = np.maximum(overlap_ns, (ops.start_ns - free_since)[held] // OVERLAP_DIVISOR)
        at = np.searchsorted(end[by_end], ops.start_ns[held] + overlap, side="right") - 1
        for _ in range(4):  # the few operations that ended just before
            source = by_end[np.maximum(at, 0)]
            near = (at >= 0) & (ops.start_ns[held] - end[source] <= COINCIDENCE_NS)
            take = near & (end[source] > free_since[held]) & ~is_bound
            dep[held[take]] = source[take]
            is_bound |= take
            at = at - 1


# Anchors: points at which the host blocked, with the operation that released it.
#
# The host blocks in synchronising calls, in launches into a full queue, in the loader while its workers make a batch,
# and in communication (CPU ranks, and rendezvous that left no collective in the trace). An anchor holds the operation
# whose end released it (its target): the last to end, of those launched before the call, that had ended when the call
# returned.

_FREE = re.compile(r"^(cuda|hip)Free(Host)?$")  # waits for everything launched before (CUDA runtime documentation)
# A fetch that took longer than both of these blocked: its batch was not ready. Taking a ready batch takes about 0.1 ms,
# more where a large one is rebuilt from shared memory; workers that are too slow by only a few per cent of the step are
# rare.
BLOCKED_FETCH_NS = 500_000
BLOCKED_FETCH_SHARE = 0.05  # of the mean step


def find_anchors(facts: RankFacts, ops: Operations, execution: Execution, arrived_ns: Array) -> Anchors:
    """Anchors of one rank in time order; of nested ones only the outermost.

    `arrived_ns`: for each row of the rank's comms, by when the last member had arrived at the latest, ns on the rank's
    own clock, shape (comms,).
    """
    waits = (Anchor.PEERS, *execution.host_waits(facts, arrived_ns))
    spans = [_syncs(facts), _loader_waits(facts), _full_queue(facts), waits]
    kind = np.concatenate([np.full(len(s), k) for k, s, _ in spans])
    start = np.concatenate([s for _, s, _ in spans])
    stop = np.concatenate([e for _, _, e in spans])
    keep = facts.is_issued_in_steps(start)
    order = np.lexsort((-stop[keep], start[keep]))
    kind, start, stop = kind[keep][order], start[keep][order], stop[keep][order]
    reach = np.maximum.accumulate(stop)
    outer = np.ones(len(start), bool)
    outer[1:] = start[1:] >= reach[:-1]
    kind, start, stop = kind[outer], start[outer], stop[outer]
    end, latest_ns = ops.end_ns, execution.latest_release_ns(facts, start, stop, arrived_ns)
    target = np.where(kind == Anchor.LOADER, -1, _targets(ops, start, latest_ns))
    released = np.where(target >= 0, end[target] if len(end) else 0, NEVER)
    tail = np.where(kind == Anchor.LOADER, stop - start, stop - np.maximum(start, released))
    return Anchors(kind, start, stop, target, np.maximum(tail, 0))


def _syncs(facts: RankFacts) -> tuple[Anchor, Array, Array]:
    spans = facts.spans_of("host_sync", "allocator")
    frees = matches(_FREE, facts.strings)[spans["name"]]
    return Anchor.SYNC, *spans.bounds_of((spans["cause"] == CAUSE_CODE["host_sync"]) | frees)


def _loader_waits(facts: RankFacts) -> tuple[Anchor, Array, Array]:
    """Fetches that blocked on worker processes: the workers set the time of the batch, not this rank."""
    spans = facts.spans_of("dataloader")
    is_wait = is_fetch_from_workers(facts.strings)[spans["name"]]
    step_ns = float(np.mean(facts.steps["end_ns"] - facts.steps["start_ns"]))
    is_wait &= spans["end_ns"] - spans["start_ns"] > max(BLOCKED_FETCH_NS, BLOCKED_FETCH_SHARE * step_ns)
    if facts.sidecar.is_captured and not facts.sidecar.loader.num_workers:
        is_wait[:] = False  # no workers: the training thread makes the batch itself, which is work, not a wait
    if _keeps_ahead(facts, step_ns):
        is_wait[:] = False  # what such a fetch takes is taking the batch over
    return Anchor.LOADER, *spans.bounds_of(is_wait)


def _keeps_ahead(facts: RankFacts, step_ns: float) -> bool:
    """True where the rank's timed workers have each batch ready in time: more than one per step, and none longer than
    the queue lasts. The rank waits elsewhere, for its peers.
    """
    timed, loader = facts.sidecar.fetching, facts.sidecar.loader
    if timed is None or not timed.workers or timed.fetch_ns > timed.workers * step_ns:
        return False
    ready = timed.workers * (loader.prefetch_factor or DEFAULT_PREFETCH) - 1
    return max(timed.fetch_ns, *timed.fetch_quantiles_ns, 0) <= ready * step_ns


def _full_queue(facts: RankFacts) -> tuple[Anchor, Array, Array]:
    ops = facts.device_ops
    slow = blocked_launches(ops) & (ops["start_ns"] > ops["launch_end_ns"])
    return Anchor.SYNC, ops["launch_ns"][slow], ops["launch_end_ns"][slow]


def _targets(ops: Operations, start_ns: Array, latest_ns: Array) -> Array:
    """Index, for each call, of the last operation to end among those launched before its start and ended by its latest
    release; -1 for none. Of several that end at once the first.
    """
    end = ops.end_ns
    order = np.lexsort((-np.arange(len(end)), end))
    launch, at = ops.launch_ns[order], np.searchsorted(end[order], latest_ns, side="right") - 1
    calls = np.flatnonzero(at >= 0)
    while len(calls := calls[launch[at[calls]] > start_ns[calls]]):  # few end sooner that were launched later
        at[calls] -= 1
        calls = calls[at[calls] >= 0]
    return np.asarray(np.append(order, -1)[at])

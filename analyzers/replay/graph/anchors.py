"""Anchors: points at which the host blocked, with the operation that released it.

The host blocks in synchronising calls, in launches into a full queue, in the loader while its workers make a batch, and
in communication (CPU ranks, and rendezvous that left no collective in the trace). An anchor holds the operation whose
end released it (its target): the last to end, of those launched before the call, that had ended when the call returned.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.execution.choose import Execution
from ddprof.analyzers.execution.operations import NEVER, Operations
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import is_fetch_from_workers, matches
from ddprof.analyzers.facts.work import blocked_launches
from ddprof.analyzers.replay.model import DEFAULT_PREFETCH, Anchor, Anchors
from ddprof.causes import CAUSE_CODE
from ddprof.tables import Array

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

"""Anchors: where the host blocked, and on what.

The host blocks in synchronising calls, in launches into a full queue, in the loader while its workers make a batch,
and, on CPU ranks, in communication. An anchor holds the operation whose end released it (its target): the last to end,
of those launched before the call, that had ended when the call returned.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.work import blocked_launches, issued_ns
from ddprof.analyzers.replay.model import NEVER, Anchor, Anchors
from ddprof.causes import CAUSE_CODE
from ddprof.tables import Array

_FREE = re.compile(r"^(cuda|hip)Free(Host)?$")  # waits for everything launched before (CUDA runtime documentation)
_WORKERS = re.compile(r"MultiProcessing", re.IGNORECASE)
# A fetch that took longer than both of these blocked: its batch was not ready. Taking a ready batch takes about 0.1 ms,
# more where a large one is rebuilt from shared memory; workers that are too slow by only a few per cent of the step are
# rare.
BLOCKED_FETCH_NS = 500_000
BLOCKED_FETCH_SHARE = 0.05  # of the mean step
SLACK_NS = 20_000  # a blocked call may return this long before the recorded end of its target
# On CPU ranks the end of a communication is stamped by a thread of the backend, and the waiting thread is woken: on
# busy cores either may run first, and the other this much later.
WAKE_NS = 300_000  # of a short wait
WAKE_DIVISOR = 50  # 1 / 50 of a long wait
IDLE_ON_DIVISOR = 5  # 1 / 5 of a wait: the most that a host idles on after the communication that it waited for
# The backend's thread releases the waiting thread first and stamps the end afterwards. With four gloo ranks on two busy
# cores it was descheduled in between for 12 ms of a wait of 100 ms (measured 2026-11-22).
LATE_STAMP_DIVISOR = 5  # 1 / 5 of the wait, and only where the wait outlasted the arrival of the last member
MIN_WAIT_NS = 30_000  # shorter idle pieces beside a communication are Python between operators


def find_anchors(facts: RankFacts, base: dict[str, Array], origin: int, arrived_ns: Array) -> Anchors:
    """Anchors of one rank in time order; of nested ones only the outermost.

    `base`: the rank's operations (`graph/build.py`). `origin`: its first step mark, ns. `arrived_ns`: for each row of
    the rank's comms, by when the last member had arrived at the latest, ns on the rank's own clock, shape (comms,).
    """
    end = base["start"] + base["dur"]
    spans = [_syncs(facts), _loader_waits(facts), _full_queue(facts), _host_comm_waits(facts, arrived_ns)]
    kind = np.concatenate([np.full(len(s), k) for k, s, _ in spans])
    start = np.concatenate([s for _, s, _ in spans])
    stop = np.concatenate([e for _, _, e in spans])
    keep = (start >= origin) & (start < facts.steps["end_ns"][-1])
    order = np.lexsort((-stop[keep], start[keep]))
    kind, start, stop = kind[keep][order], start[keep][order], stop[keep][order]
    reach = np.maximum.accumulate(stop) if len(stop) else stop
    outer = np.ones(len(start), bool)
    outer[1:] = start[1:] >= reach[:-1]
    kind, start, stop = kind[outer], start[outer], stop[outer]
    if facts.is_device_rank:
        slack = np.full(len(start), SLACK_NS)
    else:
        slack = np.maximum(_wake(start, stop), _late_stamps(facts, start, stop, arrived_ns) - stop)
    target = np.array(
        [
            _target(base, end, s, latest) if k == Anchor.SYNC else -1
            for k, s, latest in zip(kind, start, stop + slack, strict=True)
        ],
        np.int64,
    )
    released = np.where(target >= 0, end[target] if len(end) else 0, NEVER)
    tail = np.where(kind == Anchor.LOADER, stop - start, stop - np.maximum(start, released))
    return Anchors(kind, start, stop, target, np.maximum(tail, 0))


def _wake(start: Array, end: Array) -> Array:
    wake: Array = np.maximum(WAKE_NS, (end - start) // WAKE_DIVISOR)
    return wake


def _syncs(facts: RankFacts) -> tuple[Anchor, Array, Array]:
    spans = facts.spans_of("host_sync", "allocator")
    frees = matches(_FREE, facts.strings)[spans["name"]]
    return Anchor.SYNC, *spans.take((spans["cause"] == CAUSE_CODE["host_sync"]) | frees).bounds


def _loader_waits(facts: RankFacts) -> tuple[Anchor, Array, Array]:
    """Fetches that blocked on worker processes: the batch comes when the workers have it, whatever this rank does."""
    spans = facts.spans_of("dataloader")
    mine = matches(_WORKERS, facts.strings)[spans["name"]]
    step_ns = float(np.mean(facts.steps["end_ns"] - facts.steps["start_ns"])) if len(facts.steps) else 0.0
    mine &= spans["end_ns"] - spans["start_ns"] > max(BLOCKED_FETCH_NS, BLOCKED_FETCH_SHARE * step_ns)
    if facts.sidecar and not (facts.sidecar.get("dataloader") or {}).get("num_workers"):
        mine[:] = False  # no workers: the training thread makes the batch itself, which is work, not a wait
    return Anchor.LOADER, *spans.take(mine).bounds


def _full_queue(facts: RankFacts) -> tuple[Anchor, Array, Array]:
    ops = facts.device_ops
    slow = blocked_launches(ops) & (ops["start_ns"] > ops["launch_end_ns"])
    return Anchor.SYNC, ops["launch_ns"][slow], ops["launch_end_ns"][slow]


def _host_comm_waits(facts: RankFacts, arrived_ns: Array) -> tuple[Anchor, Array, Array]:
    """Idle host time of a CPU rank that lasts until a communication ends is a wait for that communication."""
    if facts.is_device_rank or not len(facts.exposed):
        return Anchor.SYNC, np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = intervals.union(*facts.exposed.bounds)
    # A thread wakes a little after the communication it waited for has ended, and buckets are waited for one by one.
    ends = np.sort(facts.comms["end_ns"])
    at = np.searchsorted(ends, end + _wake(start, end), side="right") - 1
    released = np.where(at >= 0, ends[np.maximum(at, 0)], NEVER)
    woken = (released > start) & (end - released <= np.maximum(WAKE_NS, (end - start) // IDLE_ON_DIVISOR))
    woken |= _late_stamps(facts, start, end, arrived_ns) != NEVER
    waits = woken & (end - start > MIN_WAIT_NS)
    return Anchor.SYNC, start[waits], end[waits]


def _late_stamps(facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
    """For each wait the recorded end of its communication, where that was stamped after the wait had ended; else NEVER.

    The communication of a wait is the next one to end, if it was launched before the wait, its last member arrived
    during the wait, and its end was stamped soon after. A wait that ended before the last member arrived was for
    something else.
    """
    comms = facts.comms
    order = np.argsort(comms["end_ns"], kind="stable")
    at = np.searchsorted(comms["end_ns"][order], end, side="right")
    found = np.full(len(end), NEVER)
    some = np.flatnonzero(at < len(order))
    comm = order[at[some]]
    launch, stamp, arrived = issued_ns(comms)[comm], comms["end_ns"][comm], arrived_ns[comm]
    ours = (launch <= start[some]) & (start[some] < arrived) & (arrived <= end[some])
    ours &= stamp - end[some] <= (end - start)[some] // LATE_STAMP_DIVISOR
    found[some[ours]] = stamp[ours]
    return found


def _target(base: dict[str, Array], end: Array, start: int, latest: int) -> int:
    """Of the operations launched before `start` that had ended by `latest`, the last to end (index); -1 without any."""
    eligible = np.flatnonzero((base["launch"] <= start) & (end <= latest))
    if not len(eligible):
        return -1
    return int(eligible[np.argmax(end[eligible])])

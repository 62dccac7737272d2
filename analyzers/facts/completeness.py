"""Steps that are in the trace only in part.

Where a device tracer runs out of buffers, launch calls are recorded and the work they launched is not, or the reverse.
Where a file ends early its calls and its kernels end together, while operators, which are written before them, go on.
Either hole looks like an idle device and a free host, and whatever the host did meanwhile would be blamed for it.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.names import is_launch
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import NULL, Array, Table
from ddprof.units import format_share

LOST_SHARE = 0.05  # of a step's launches; complete traces (all at hand) link every launch to its work
MIN_LOST = 5  # launches of a step; of single records lost at random hardly three in a row
SIGMAS = 3.0  # by which a step of scattered losses may lie above LOST_SHARE: others of the same file lie as far below
FEWER_SHARE = 0.2  # of the events of a step; complete steps of one program differ by less
LINKED_SHARE = 0.02  # of all launches; with fewer linked, this trace does not use correlation ids


def complete_steps(trace: RankTrace, steps: Table) -> tuple[Table, bool, list[HealthNote]]:
    """The complete steps, whether every step returned is complete, and notes on what was left out.

    All steps are returned where none is complete. Which of several stretches is used, all ranks decide together: where
    the files of two ranks have their holes in different steps, the longest stretch of each may not be the other's.
    """
    lost, launches, in_a_row = _lost_launches(trace, steps)
    scatter = SIGMAS * np.sqrt(LOST_SHARE * (1 - LOST_SHARE) * launches)
    most = LOST_SHARE * launches + np.where(in_a_row < MIN_LOST, scatter, 0.0)
    broken = (lost >= MIN_LOST) & (lost > most)
    ended = _ended_early(trace, steps)
    if not (broken | ended).any():
        return steps, True, []
    if broken.any():
        share = f"{format_share(lost[broken].sum() / launches[broken].sum())} of the kernel launches"
        defect = f"{share} in {int(broken.sum())} of {len(steps)} steps have no device record"
    else:
        defect = f"the record of some kind of event ends before {int(ended.sum())} of {len(steps)} steps do"
    left_out = broken | ended
    if left_out.all():
        effect = "idle time of the device may be work that was not recorded: nobody is blamed for it"
        return steps, False, [HealthNote(f"{trace.path}: {defect}", effect, "error")]
    named = ", ".join(map(str, steps["index"][left_out][:8].tolist()))
    note = HealthNote(f"{trace.path}: {defect}", f"steps left out: {named}", "warning")
    return steps.take(np.flatnonzero(~left_out)), True, [note]


def _ended_early(trace: RankTrace, steps: Table) -> Array:
    """Steps in which the record of runtime calls, or of operators, has ended; bool, shape (steps,).

    It has where a later step holds none. The step it ends in counts where it holds fewer than any other, of which some
    may evaluate or save as well, and ends longer after the last one than they do.
    """
    events, count = trace.events, len(steps)
    ended = np.zeros(count, bool)
    for kind in (Kind.RUNTIME, Kind.CPU_OP) if count else ():
        at = events["ts_ns"][events["kind"] == kind]
        step = np.searchsorted(steps["start_ns"], at, side="right") - 1
        inside = (step >= 0) & (at < steps["end_ns"][step])
        held = np.bincount(step[inside], minlength=count)
        if not held.any():
            continue
        last = int(np.flatnonzero(held)[-1])
        ended[last + 1 :] = True
        last_ns = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(last_ns, step[inside], at[inside])
        tail_ns = steps["end_ns"] - last_ns
        before = np.flatnonzero(held[:last])
        fewer = len(before) and held[last] < (1 - FEWER_SHARE) * held[before].min()
        ended[last] |= last + 1 < count or bool(fewer and tail_ns[last] > tail_ns[before].max())
    return ended


def _lost_launches(trace: RankTrace, steps: Table) -> tuple[Array, Array, Array]:
    """Launches without device work, all launches, and how many in a row are without, per step; of shape (steps,)."""
    events, count = trace.events, len(steps)
    none = np.zeros(count, np.int64)
    given = (events["correlation"] != NULL) & (events["correlation"] != 0)
    calls = np.flatnonzero((events["kind"] == Kind.RUNTIME) & given)
    # Copy calls are not counted: copies within the host, and of no bytes, never leave a device record.
    calls = calls[is_launch(trace.strings)[events["name"][calls]]]
    if not count or not len(calls):
        return none, none, none
    done = events["correlation"][np.isin(events["kind"], DEVICE_KINDS) & given]
    linked = np.isin(events["correlation"][calls], done)
    if linked.mean() < LINKED_SHARE:
        return none, none, none
    at, unlinked = events["ts_ns"][calls], ~linked
    step = np.searchsorted(steps["start_ns"], at, side="right") - 1
    inside = (step >= 0) & (at < steps["end_ns"][step])
    lost, launches = (np.bincount(step[which], minlength=count) for which in (inside & unlinked, inside))
    return lost, launches, _most_in_a_row(at[inside], unlinked[inside], step[inside], count)


def _most_in_a_row(at_ns: Array, lost: Array, step: Array, count: int) -> Array:
    """Of the launches at some instants the longest row of lost ones of each step, shape (`count`,)."""
    order = np.argsort(at_ns, kind="stable")
    lost, step = lost[order], step[order]
    number = np.cumsum(~lost | (np.diff(step, prepend=-1) != 0))  # of the row that a launch is in
    first = np.searchsorted(number, number)
    length = np.arange(len(number)) - first + lost[first]
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, step[lost], length[lost])
    return longest


def longest_run(sound: Array) -> tuple[int, int]:
    """Half-open range of the longest run of true values, the first of equals; (0, 0) where there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], sound, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return 0, 0
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]), int(ends[longest])

"""Steps whose device work is in the trace only in part.

Where a device tracer runs out of buffers, or a file ends early, launch calls are recorded and the work they launched is
not. The hole looks like an idle device, and whatever the host did meanwhile would be blamed for it.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.facts.names import matches
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import NULL, Array, Table
from ddprof.units import format_share

# Copy calls are not counted: copies within the host, and of no bytes, never leave a device record.
_LAUNCH = re.compile(r"launch\w*kernel", re.IGNORECASE)
LOST_SHARE = 0.05  # of a step's launches; complete traces (all at hand) link every launch to its work
MIN_LOST = 5  # launches of a step
LINKED_SHARE = 0.02  # of all launches; with fewer linked, this trace does not use correlation ids


def complete_steps(trace: RankTrace, steps: Table) -> tuple[Table, bool, list[HealthNote]]:
    """The longest run of complete steps, whether every step returned is complete, and notes on what was left out.

    All steps are returned where that run is shorter than half of them.
    """
    lost, launches = _lost_launches(trace, steps)
    broken = (lost >= MIN_LOST) & (lost > LOST_SHARE * launches)
    if not broken.any():
        return steps, True, []
    share = f"{format_share(lost[broken].sum() / launches[broken].sum())} of the kernel launches"
    begin, end = _longest_run(~broken)
    if (end - begin) * 2 < len(steps):
        issue = f"{trace.path}: {share} in {int(broken.sum())} of {len(steps)} steps have no device record"
        effect = "idle time of the device may be work that was not recorded: nobody is blamed for it"
        return steps, False, [HealthNote(issue, effect, "error")]
    left_out = np.ones(len(steps), bool)
    left_out[begin:end] = False
    named = ", ".join(map(str, steps["index"][left_out][:8].tolist()))
    issue = f"{trace.path}: {share} in steps with damage have no device record"
    return steps.take(np.arange(begin, end)), True, [HealthNote(issue, f"steps left out: {named}", "warning")]


def _lost_launches(trace: RankTrace, steps: Table) -> tuple[Array, Array]:
    """Launches without device work, and all launches, per step; each of shape (steps,)."""
    events, count = trace.events, len(steps)
    none = np.zeros(count, np.int64)
    given = (events["correlation"] != NULL) & (events["correlation"] != 0)
    calls = np.flatnonzero((events["kind"] == Kind.RUNTIME) & given)
    calls = calls[matches(_LAUNCH, trace.strings)[events["name"][calls]]]
    if not count or not len(calls):
        return none, none
    done = events["correlation"][np.isin(events["kind"], DEVICE_KINDS) & given]
    linked = np.isin(events["correlation"][calls], done)
    if linked.mean() < LINKED_SHARE:
        return none, none
    step = np.searchsorted(steps["start_ns"], events["ts_ns"][calls], side="right") - 1
    inside = (step >= 0) & (events["ts_ns"][calls] < steps["end_ns"][step])
    return np.bincount(step[inside & ~linked], minlength=count), np.bincount(step[inside], minlength=count)


def _longest_run(sound: Array) -> tuple[int, int]:
    """Half-open range of the longest run of true values, the first of equals; (0, 0) where there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], sound, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return 0, 0
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]), int(ends[longest])

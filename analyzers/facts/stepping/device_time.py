"""Steps in device time: work belongs to the step that launched it.

A host that runs ahead passes its step mark long before the device begins that step's work; in a healthy job this is
normal. A device step begins when an event recorded at the mark would complete (CUDA programming guide, "Events"): when
everything launched before the mark has ended. Where the job synchronises at the end of every step, that is the mark
itself.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import is_early
from ddprof.analyzers.facts.gaps import MAX_LAUNCH_LATENCY_NS
from ddprof.analyzers.facts.model import Work
from ddprof.tables import NULL, Array, Table

FEWEST_LATER = 3  # communications of one name, for a usual time
TIMES_USUAL = 10.0  # an order of magnitude, as everywhere where "far longer" is asked for
ALWAYS, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def in_device_time(steps: Table, ops: Table, are_marked: bool) -> Table:
    """STEPS with the start and end of the device's work; unchanged where no launch is known.

    `steps`: start and end at host marks. Without marks (`are_marked` False) the window is one step, which begins when
    the device has finished unrecorded work. A step without device work whose host did not wait is dropped.
    """
    launched = ops["launch_ns"] != NULL
    if not len(steps) or not launched.any():
        return steps
    if not are_marked:
        free_ns = max(_queue_free_ns(ops, int(steps["mark_ns"][0])), met_ns(ops, steps))
        return steps.replace(start_ns=np.clip(free_ns, steps["start_ns"], steps["end_ns"] - 1))
    steps = _with_work(steps, ops["launch_ns"][launched])
    work = np.flatnonzero((launched | is_early(ops)) & (ops["work"] != Work.COPY))
    launch, start, end = np.where(launched, ops["launch_ns"], ALWAYS)[work], ops["start_ns"][work], ops["end_ns"][work]
    compute = ops["work"][work] == Work.COMPUTE
    free_ns = _queue_free_ns(ops, int(steps["mark_ns"][0]))

    def begun(mark_ns: Array) -> Array:
        ended = np.maximum(mark_ns, free_ns)
        computed = np.maximum(ended, _last_end(launch[compute], end[compute], mark_ns))
        following = _first_start(launch[compute], start[compute], mark_ns)
        # Communication that the next step's work does not wait for overlaps it: that step has begun.
        return np.maximum(computed, np.minimum(_last_end(launch, end, mark_ns), following))

    begin, until = np.split(begun(np.concatenate((steps["mark_ns"], steps["mark_end_ns"]))), 2)
    return steps.replace(start_ns=begin, end_ns=until).take(np.flatnonzero(until > begin))


def met_ns(ops: Table, steps: Table) -> int:
    """Until when the first communication of a window waited for ranks whose profilers started later; ALWAYS where it
    did not.

    `torch.profiler` starts on each rank on its own, apart by up to seconds. The first communication then takes longer
    than all else in the window, and far longer than the same one does later.
    """
    comm = np.flatnonzero(ops["work"] == Work.COMM)
    if not len(comm):
        return ALWAYS
    first = comm[np.argmin(ops["start_ns"][comm])]
    begin, end = int(ops["start_ns"][first]), int(ops["end_ns"][first])
    later = comm[(ops["name"][comm] == ops["name"][first]) & (comm != first)]
    rest = int(steps["end_ns"][-1]) - int(steps["start_ns"][0]) - (end - begin)
    if len(later) < FEWEST_LATER or end - begin <= rest:
        return ALWAYS
    usual = float(np.median((ops["end_ns"] - ops["start_ns"])[later]))
    return end if end - begin >= TIMES_USUAL * usual else ALWAYS


def _with_work(steps: Table, launch_ns: Array) -> Table:
    """Steps without those at either end that launch nothing: marks of a stopping profiler."""
    begin, end = (np.searchsorted(np.sort(launch_ns), at) for at in (steps["mark_ns"], steps["mark_end_ns"]))
    filled = np.flatnonzero(end > begin)
    return steps.take(np.arange(filled[0], filled[-1] + 1)) if len(filled) else steps


def _last_end(launch_ns: Array, end_ns: Array, before_ns: Array) -> Array:
    """Latest end of everything launched before each instant; ALWAYS where nothing was."""
    order = np.argsort(launch_ns, kind="stable")
    reach = np.concatenate(([ALWAYS], np.maximum.accumulate(end_ns[order]))) if len(order) else np.array([ALWAYS])
    return np.asarray(reach[np.searchsorted(launch_ns[order], before_ns)])


def _first_start(launch_ns: Array, start_ns: Array, from_ns: Array) -> Array:
    """Earliest start of everything launched at or after each instant; NEVER where nothing is."""
    order = np.argsort(launch_ns, kind="stable")
    first = np.minimum.accumulate(start_ns[order][::-1])[::-1] if len(order) else start_ns
    return np.asarray(np.append(first, NEVER)[np.searchsorted(launch_ns[order], from_ns)])


def _queue_free_ns(ops: Table, mark_ns: int) -> int:
    """End of the device's unrecorded work launched before the recording; ALWAYS where there was none. `mark_ns`: the
    first step mark.

    The first operation of the stream that computes most shows it: it had been launched, and started far later than a
    launch takes, though nothing recorded ran before it on its stream. If it started when an operation of another stream
    ended, that stream was the one that was held up. Where recorded operations fill most of that time, it waited for
    them.
    """
    computed = (ops["work"] == Work.COMPUTE) & (ops["end_ns"] > ops["start_ns"])
    if not computed.any():
        return ALWAYS
    length = np.where(computed, ops["end_ns"] - ops["start_ns"], 0)
    busiest = int(np.argmax(np.bincount(ops["track"], weights=length)))
    first = _first_of(ops, busiest)
    start = int(ops["start_ns"][first])
    released = (ops["end_ns"] <= start) & (ops["end_ns"] > start - MAX_LAUNCH_LATENCY_NS)
    if _is_held_up(ops, first, mark_ns) and released.any():
        first = _first_of(ops, int(ops["track"][np.flatnonzero(released)[0]]))
    start = int(ops["start_ns"][first])
    if not _is_held_up(ops, first, mark_ns):
        return ALWAYS
    recorded = intervals.overlap(intervals.union(*ops.bounds), np.array([mark_ns]), np.array([start]))
    return start if 2 * int(recorded[0]) <= start - mark_ns else ALWAYS


def _first_of(ops: Table, track: int) -> int:
    rows = np.flatnonzero(ops["track"] == track)
    return int(rows[np.argmin(ops["start_ns"][rows])])


def _is_held_up(ops: Table, row: int, mark_ns: int) -> bool:
    """True where the operation was queued for longer than a launch takes, and for most of the time since the mark.

    Queueing begins when its call has returned; time inside the call (loading code, staging a copy) is the host's.
    """
    start, returned = int(ops["start_ns"][row]), int(ops["launch_end_ns"][row])
    return returned != NULL and start - returned > max(MAX_LAUNCH_LATENCY_NS, returned - mark_ns)

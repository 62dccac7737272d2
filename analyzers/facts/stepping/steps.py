"""Steps of a rank from the first source that shows them: ProfilerStep marks of the host, marks of the device, training
annotations, repetition on the device, else the window as one step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import launch_rows
from ddprof.analyzers.facts.model import STEPS
from ddprof.analyzers.facts.names import is_dataloader, matches, rows_of, times
from ddprof.analyzers.facts.stepping.device_time import NEVER
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import Array, Table, of_kinds

# Host marks of steps recovered from a trace with marks on the device alone.
#
# The profiler draws a host range on every stream that ran work launched within it, from that work's first start to its
# last end. So the host passed a mark after launching the last work under the previous mark and before launching the
# first under this one. Launches in between on streams without marks are divided at the host's longest pause, since a
# host pauses between steps, for its next batch or for the device.

LONGER = 3  # times the usual pause before a step: beyond it calls are missing in the file, not in the program
PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d+)")
OPTIMIZER = re.compile(r"^Optimizer\.step#|^ddprof::optimizer$|^optimizer[._ ]?step|optimizer_step", re.IGNORECASE)
_LONGEST_NUMBER = 15  # digits: a step each microsecond for thirty years


def steps_of_device_marks(trace: RankTrace) -> Table | None:
    """STEPS, with the host's marks as start and end; None where the device carries none."""
    events = trace.events
    marks = rows_of(trace, Kind.GPU_ANNOTATION, matches(PROFILER_STEP, trace.strings))
    if not len(marks):
        return None
    index, of_step = np.unique(numbers_of(trace.strings, events["name"][marks]), return_inverse=True)
    start, end = np.full(len(index), NEVER), np.zeros(len(index), np.int64)
    opens, closes = times(events, marks)
    np.minimum.at(start, of_step, opens)
    np.maximum.at(end, of_step, closes)
    rows = np.flatnonzero(of_kinds(events["kind"], DEVICE_KINDS))
    calls = launch_rows(trace)[rows]
    rows, calls = rows[calls >= 0], calls[calls >= 0]
    at, launch = events["ts_ns"][rows], events["ts_ns"][calls]
    is_marked = np.isin(events["track"][rows], events["track"][marks])
    if not is_marked.any():  # annotations have tracks of their own
        is_marked[:] = True
    step = np.searchsorted(start, at, side="right") - 1
    in_step = is_marked & (step >= 0)
    first, last = np.full(len(index), NEVER), np.zeros(len(index), np.int64)
    np.minimum.at(first, step[in_step], launch[in_step])
    np.maximum.at(last, step[in_step], launch[in_step])
    called = np.minimum(first, start)
    if not in_step.any() or (np.diff(start) <= 0).any() or (np.diff(called) <= 0).any():
        return host_steps(index, start, np.append(start[1:], end[-1]))
    called = _before_what_follows(called, last, np.sort(launch[~is_marked]))
    final = max(int(launch.max()) + 1, int(called[-1]) + 1)
    opened = _after_what_precedes(trace, called, calls)
    return host_steps(index, opened, np.append(opened[1:], final))


def _after_what_precedes(trace: RankTrace, called: Array, calls: Array) -> Array:
    """`called` moved to the start of the host's pause before each step; ns, shape (steps,).

    A batch that is waited for or made belongs to the step that uses it; the optimizer's range to the step before. The
    first step begins with the recording of the threads that launch.
    """
    events = trace.events
    host = of_kinds(events["kind"], (Kind.ANNOTATION, Kind.CPU_OP))
    optimizer = np.flatnonzero(host & matches(OPTIMIZER, trace.strings)[events["name"]])
    rows = np.concatenate((np.unique(calls), optimizer))
    rows = rows[np.argsort(events["ts_ns"][rows], kind="stable")]
    done = np.maximum.accumulate(times(events, rows)[1])
    recorded = events["ts_ns"][host & np.isin(events["track"], events["track"][calls])]
    opens = int(recorded.min()) if len(recorded) else int(called[0])
    before = np.searchsorted(events["ts_ns"][rows], called) - 1
    pause = np.maximum(0, called - np.where(before >= 0, done[np.maximum(before, 0)], opens))
    return np.asarray(called - np.minimum(pause, round(LONGER * float(np.median(pause)))))


def _before_what_follows(called: Array, last: Array, loose: Array) -> Array:
    """`called` moved before the launches in `loose` that belong to the same step; ns, shape (steps,).

    `last`: the last launch known to belong to each step. Every mark moves across the same number of launches, the most
    frequent one, as steps begin with the same work.
    """
    between = [
        loose[np.searchsorted(loose, end, side="right") : np.searchsorted(loose, begin)]
        for end, begin in zip(last[:-1], called[1:], strict=True)
    ]
    counts = [
        len(these) - int(np.argmax(np.diff(np.concatenate(([end], these, [begin])))))
        for end, these, begin in zip(last[:-1], between, called[1:], strict=True)
    ]
    if not counts:
        return called
    values, times = np.unique(counts, return_counts=True)
    usual = int(values[np.argmax(times)])
    before_first = loose[: np.searchsorted(loose, called[0])]
    moved = called.copy()
    for step, these in enumerate([before_first, *between]):
        if usual and len(these) >= usual:
            moved[step] = these[len(these) - usual]
    return moved


def numbers_of(strings: Sequence[str], names: Array) -> Array:
    """The step numbers in marks; a mark whose number cannot be parsed gets its predecessor's plus one."""
    numbers: list[int] = []
    for name in names.tolist():
        match = PROFILER_STEP.match(strings[name])
        is_usable = match is not None and len(match[1]) <= _LONGEST_NUMBER
        numbers.append(int(match[1]) if match and is_usable else numbers[-1] + 1 if numbers else 0)
    return np.array(numbers, np.int64)


def host_steps(index: Array, start_ns: Array, end_ns: Array) -> Table:
    """STEPS from one host mark to the next; device_time.py converts them to device time."""
    return STEPS.table(
        {"index": index, "start_ns": start_ns, "end_ns": end_ns, "mark_ns": start_ns, "mark_end_ns": end_ns}
    )


_FORWARD = re.compile(r"DataParallel\.forward|^ddprof::forward$|^forward$|^## ?forward", re.IGNORECASE)
# Ranges that scripts draw around a step, and those of parts of a step that are named alike.
_OWN_STEP = re.compile(r"(?:^|[^a-z])(?:step|iter|iteration|batch)(?:[^a-z]|$)|(?:train|training)_?step", re.IGNORECASE)
_NO_STEP = re.compile(r"optim|sched|micro|load|fetch|zero_grad|eval|valid|test|norm|::", re.IGNORECASE)
_DEVICE_SYNC = re.compile(r"DeviceSynchronize|CtxSynchronize", re.IGNORECASE)
RESOLUTION_NS = 1_000  # of times in traces of older profilers: ranges that touch may seem to overlap by that much
MIN_MARKS = 2  # a mark that does not repeat is no boundary of steps
# A forward pass that is recomputed or evaluated makes every kernel occur twice: two alike show no rhythm.
MIN_PERIODS = 3
MIN_KERNELS = 8  # of one period: shorter ones are loops inside a step
SAME_SHARE = 0.95  # of the kernels that equal the one a period later; libraries choose others now and then


def find_steps(trace: RankTrace) -> tuple[Table, str, int | None, list[HealthNote]]:
    """Return STEPS, their source (RankFacts.step_source), the host track that carries the marks, and health notes."""
    events = trace.events
    host = of_kinds(events["kind"], (Kind.ANNOTATION, Kind.CPU_OP, Kind.PYTHON))
    marks = host & matches(PROFILER_STEP, trace.strings)[events["name"]]
    if marks.any():
        return _from_marks(trace, np.flatnonzero(marks))
    main = _main_thread(trace, host)
    if not len(trace.events):
        return STEPS.empty(), "inferred", main, []
    on_device = steps_of_device_marks(trace)
    if on_device is not None:
        return on_device, "profiler_step", main, []
    steps = _from_annotations(trace, host)
    if steps is not None:
        return steps, "annotation", main, []
    steps = _from_repetition(trace, host)
    if steps is not None:
        note = HealthNote("no step marks in the trace", f"{len(steps)} steps were found by what repeats", "info")
        return steps, "inferred", main, [note]
    first, last = _window(trace)
    whole = [(0, first, last)] if last > first else []
    return host_steps(*np.array(whole, np.int64).reshape(-1, 3).T), "inferred", main, []


def _from_marks(trace: RankTrace, rows: Array) -> tuple[Table, str, int | None, list[HealthNote]]:
    events, notes = trace.events, []
    tracks, counts = np.unique(events["track"][rows], return_counts=True)
    main = int(tracks[np.argmax(counts)])
    rows = rows[events["track"][rows] == main]
    index = numbers_of(trace.strings, events["name"][rows])
    start, end = times(events, rows)
    consecutive = index[1:] == index[:-1] + 1
    end[:-1] = np.where(consecutive, start[1:], np.minimum(end[:-1], start[1:]))
    keep = end > start
    if not keep.all():
        issue = f"{int((~keep).sum())} step marks without length"
        notes.append(HealthNote(issue, "those steps are not counted", "warning"))
    steps = host_steps(index[keep], start[keep], end[keep])
    return steps, "profiler_step", main, notes


def _from_annotations(trace: RankTrace, host: Array) -> Table | None:
    """Steps from the first loader fetch (else the first forward) after an optimizer step; without these from a range
    that the script draws per step, else from optimizer steps. None where nothing repeats.
    """
    events = trace.events
    optimizer_ns = _outermost_starts(trace, host & matches(OPTIMIZER, trace.strings)[events["name"]])
    loader_ns = _outermost_starts(trace, host & is_dataloader(trace.strings)[events["name"]])
    forward_ns = _outermost_starts(trace, host & matches(_FORWARD, trace.strings)[events["name"]])
    named_ns, named_end = _from_names(trace, host)
    last = _host_end(trace, host)
    for anchors, end in ((loader_ns, last), (forward_ns, last), (named_ns, named_end)):
        if len(anchors) < MIN_MARKS:
            continue
        if len(optimizer_ns):
            group = np.searchsorted(optimizer_ns, anchors, side="right")
            anchors = anchors[np.append(True, group[1:] > group[:-1])]
        if len(anchors) >= MIN_MARKS:
            return _steps_from_boundaries(np.append(anchors, end))
    if len(optimizer_ns) >= MIN_MARKS:
        return _steps_from_boundaries(optimizer_ns)
    return None


def _from_names(trace: RankTrace, host: Array) -> tuple[Array, int]:
    """Starts of the script's own step ranges ("train_step 12", "epoch_0_batch_3"), and the end of the last; of several
    such names, numbers aside, the one whose ranges last longest in total.
    """
    events = trace.events
    named = matches(_OWN_STEP, trace.strings) & ~matches(_NO_STEP, trace.strings)
    rows = np.flatnonzero(host & (events["kind"] == Kind.ANNOTATION) & named[events["name"]])
    kinds = [(re.sub(r"\d+", "#", trace.strings[events["name"][r]]), int(events["track"][r])) for r in rows]
    best, last, longest = np.empty(0, np.int64), 0, 0
    for kind in dict.fromkeys(kinds):
        ranges = rows[[other == kind for other in kinds]]
        start, end = map(np.sort, times(events, ranges))
        length = int((end - start).sum())
        if len(ranges) >= MIN_MARKS and (end[:-1] <= start[1:] + RESOLUTION_NS).all() and length > longest:
            best, last, longest = start, int(end[-1]), length
    return best, last


def _from_repetition(trace: RankTrace, host: Array) -> Table | None:
    events, rows = trace.events, _repeated_steps(trace)
    if rows is None:
        return None
    launch = launch_rows(trace)[rows]
    begin = np.where(launch >= 0, events["ts_ns"][launch], events["ts_ns"][rows])
    end = _host_end(trace, host) if (launch >= 0).all() else _window(trace)[1]
    if (np.diff(begin) <= 0).any() or end <= begin[-1]:
        return None
    return _steps_from_boundaries(np.append(begin, end))


def _outermost_starts(trace: RankTrace, selected: Array) -> Array:
    start, end = times(trace.events, selected)
    return start[intervals.outermost(start, end)]


def _steps_from_boundaries(boundaries: Array) -> Table:
    keep = boundaries[1:] > boundaries[:-1]
    start, end = boundaries[:-1][keep], boundaries[1:][keep]
    return host_steps(np.arange(len(start)), start, end)


def _window(trace: RankTrace) -> tuple[int, int]:
    """First start and last end of host and device work (ns), without the profiler's own work."""
    events = trace.events
    keep = ~of_kinds(events["kind"], (Kind.OVERHEAD, Kind.OTHER, Kind.GPU_ANNOTATION))
    if not keep.any():
        keep = np.ones(len(events), bool)
    start, end = times(events, keep)
    return int(start.min()), int(end.max())


def _host_end(trace: RankTrace, host: Array) -> int:
    """End of the host's last event (ns), ignoring the profiler's final device synchronisation, in which a host that
    runs ahead spends several steps' time.
    """
    events = trace.events
    rows = np.flatnonzero(host | (events["kind"] == Kind.RUNTIME))
    if not len(rows):
        return _window(trace)[1]
    starts, ends = times(events, rows)
    final = rows[np.argmax(starts)]
    is_wait = _DEVICE_SYNC.search(trace.strings[events["name"][final]]) is not None
    return int(ends[rows != final].max()) if is_wait and len(rows) > 1 else int(ends.max())


def _main_thread(trace: RankTrace, host: Array) -> int | None:
    """The host track that launches most device work, else the one with most host time; None without any."""
    events = trace.events
    runtime = events["kind"] == Kind.RUNTIME
    device = of_kinds(events["kind"], DEVICE_KINDS)
    chosen = runtime if runtime.any() and device.any() else host
    if not chosen.any():
        return None
    tracks, counts = np.unique(events["track"][chosen], return_counts=True)
    return int(tracks[np.argmax(counts)])


def step_marks(steps: Table) -> Array:
    """Boundaries of the steps as one sorted array: every start and every end, shape (k,)."""
    return np.unique(np.concatenate((steps["start_ns"], steps["end_ns"])))


def _repeated_steps(trace: RankTrace) -> Array | None:
    """Event rows of the first operation of every period on the stream that computes longest; None without a period.

    If a window holds n whole steps of equal kernels, every kernel occurs a multiple of n times, and one step further on
    the kernel is the same. A window cut inside a step, or with unequal steps, has no such period and stays whole.
    """
    events = trace.events
    rows = np.flatnonzero(events["kind"] == Kind.KERNEL)
    if not len(rows):
        return None
    tracks, of_track = np.unique(events["track"][rows], return_inverse=True)
    busiest = int(np.argmax(np.bincount(of_track, weights=events["dur_ns"][rows], minlength=len(tracks))))
    rows = rows[of_track == busiest]
    names = events["name"][rows]
    _, counts = np.unique(names, return_counts=True)
    periods = int(np.gcd.reduce(counts))
    if periods < MIN_PERIODS:
        return None
    length = len(rows) // periods
    if length < MIN_KERNELS or (names[:-length] == names[length:]).mean() < SAME_SHARE:
        return None
    return np.asarray(rows[::length])

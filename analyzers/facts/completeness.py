"""Steps recorded only in part.

Where a device tracer runs out of buffers, launches are recorded without their work, or the reverse. Where a file ends
early, calls and kernels end while operators, which are written first, go on. Either hole looks like an idle device and
a free host, and the host would be blamed. PyTorch numbers what it records on hosts: where numbers are missing, records
are.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.cpu.operators import LIBRARY, shapes_of
from ddprof.analyzers.facts.device import accelerator, device_rows, launch_rows, lookup
from ddprof.analyzers.facts.early import is_early
from ddprof.analyzers.facts.names import is_launch, matches, rows_of, times
from ddprof.analyzers.facts.stepping.start_up import captures
from ddprof.analyzers.facts.stepping.steps import RESOLUTION_NS
from ddprof.intervals import Intervals
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import NULL, Array, Table, distinct, of_kinds, stable_order
from ddprof.units import format_count, format_share, format_us

_GRAPH = re.compile(r"^(?:cuda|hip|cu)GraphLaunch", re.IGNORECASE)
LOST_SHARE = 0.05  # of a step's launches; complete traces (all at hand) link every launch to its work
MIN_LOST = 5  # launches of a step; of single records lost at random hardly three in a row
SIGMAS = 3.0  # by which a step of scattered losses may lie above LOST_SHARE: others of the same file lie as far below
FEWER_SHARE = 0.2  # of the events of a step; complete steps of one program differ by less
OUTSIDE_MARKS = 0.5  # of the device work; in complete traces with marks of the profiler's all of it is inside
LINKED_SHARE = 0.02  # of the device's work; with less of it linked to calls, this trace does not use correlation ids


def complete_steps(trace: RankTrace, steps: Table) -> tuple[Table, bool, list[HealthNote]]:
    """The complete steps, whether all returned steps are complete, and notes on those left out.

    Returns all steps where none is complete. All ranks together choose among several complete stretches: holes lie in
    different steps on different ranks, and each rank's longest stretch may be incomplete on another.
    """
    lost, launches, in_a_row = _lost_launches(trace, steps)
    scatter = SIGMAS * np.sqrt(LOST_SHARE * (1 - LOST_SHARE) * launches)
    most = LOST_SHARE * launches + np.where(in_a_row < MIN_LOST, scatter, 0.0)
    broken = (lost >= MIN_LOST) & (lost > most)
    ended = _ended_early(trace, steps)
    torn = _torn_on_cpu(trace, steps)
    if not (broken | ended | torn).any():
        return steps, True, []
    if torn.any():
        count = int(trace.lost_records["count"].sum())
        defect = (
            f"{format_count(count, 'record')} between others lost" if count else "operators overlap (a clock was set)"
        )
        defect += f", in {int(torn.sum())} of {len(steps)} steps"
    elif broken.any():
        share = f"{format_share(lost[broken].sum() / launches[broken].sum())} of the kernel launches"
        defect = f"{share} in {int(broken.sum())} of {len(steps)} steps have no device record"
    else:
        defect = f"some events stop being recorded before the end of {int(ended.sum())} of {len(steps)} steps"
    left_out = broken | ended | torn
    if left_out.all():
        effect = "idle time may be unrecorded work, so no rank is blamed for it"
        return steps, False, [HealthNote(f"{trace.path}: {defect}", effect, "error")]
    named = ", ".join(map(str, steps["index"][left_out][:8].tolist()))
    note = HealthNote(f"{trace.path}: {defect}", f"steps left out: {named}", "warning")
    return steps.take(np.flatnonzero(~left_out)), True, [note]


def lost_marks_note(trace: RankTrace, marked: Table, steps: Table, ops: Table) -> list[HealthNote]:
    """A note where step marks are missing: most work was launched outside the marked steps, work was launched at a gap
    in the step numbers, or one step is left between gaps.

    The profiler marks every step it records. `marked`: all marked steps; `steps`: the complete ones in device time;
    `ops`: DEVICE_OPS. Where no launch is known, start times count; else work without a launch precedes the recording.
    """
    is_skipped = np.diff(marked["index"]) > 1
    if len(steps) == 1 and is_skipped.any():
        issue = f"{trace.path}: the numbers of its step marks leave some out, and one step is left"
        return [HealthNote(issue, "events are missing, so the step may not be typical", "error")]
    has_launch = ops["launch_ns"] != NULL
    start, end = intervals.merge(marked.bounds, intervals.EMPTY if has_launch.any() else steps.bounds)
    at = np.sort(ops["launch_ns"][has_launch] if has_launch.any() else ops["start_ns"])
    inside = np.searchsorted(at, end) - np.searchsorted(at, start)
    between = np.searchsorted(at, marked["start_ns"][1:]) - np.searchsorted(at, marked["end_ns"][:-1])
    is_left_out = bool((has_launch.any() & (between >= MIN_LOST) & is_skipped).any())
    most = len(at) >= MIN_LOST and int(inside.sum()) < OUTSIDE_MARKS * len(at)
    if not len(steps) or not (most or is_left_out):
        return []
    issue = f"{trace.path}: {'most' if most else 'some'} of the device's work is outside of the marks of its "
    issue += f"{len(marked)} steps"
    return [HealthNote(issue, "step marks are missing, so step times are unknown", "error")]


def lost_calls_note(trace: RankTrace, steps: Table, ops: Table) -> list[HealthNote]:
    """A note where launch calls are missing from a file of one step (`ops`: DEVICE_OPS).

    Complete traces hold all launch calls or none, except those of operations launched before the recording. Several
    steps are compared with each other instead.
    """
    if len(steps) != 1:
        return []
    has_launch = launch_rows(trace)[device_rows(trace)] >= 0
    if not has_launch.any():
        return []
    inside = (ops["start_ns"] >= steps["start_ns"][0]) & (ops["start_ns"] < steps["end_ns"][0])
    missing = (~has_launch & ~is_early(ops))[inside]
    if missing.sum() < MIN_LOST or missing.mean() <= LOST_SHARE:
        return []
    issue = f"{trace.path}: {format_share(float(missing.mean()))} of the operations in its step have no launch call"
    return [HealthNote(issue, "calls are missing, so no rank is blamed for host time", "error")]


def device_clock_note(trace: RankTrace, ops: Table) -> list[HealthNote]:
    """A note where more than LOST_SHARE of the work begins before the call that launches it (`ops`: DEVICE_OPS): the
    device's clock was off, or was set, and what the host did while the device was idle is unknown. Single launches may
    be restored from the operator around them.
    """
    early_ns = (ops["launch_ns"] - ops["start_ns"])[ops["launch_ns"] != NULL]
    if (early_ns > RESOLUTION_NS).sum() <= LOST_SHARE * len(early_ns):
        return []
    by = format_us(float(early_ns.max()) / 1e3)
    issue = f"{trace.path}: work of the device begins up to {by} before the call that launches it"
    return [HealthNote(issue, "the two have different clocks, so no rank is blamed for host time", "error")]


def lost_pairs_note(trace: RankTrace, steps: Table) -> list[HealthNote]:
    """A note where over LOST_SHARE of the launching calls, and MIN_LOST in two steps, launched in only one of the two,
    equally often in either: launch calls are missing together with their kernels.

    Where a buffer drops both, no record lacks its other half, and an idle device looks like a slow host. Operators
    reveal it: of two calls of one operator with equal shapes at the same place in two steps, one launched work and the
    other did not. Extra work in one step (a library that tries kernels) is one-sided; lost records leave holes in both.
    """
    if not len(steps):
        return []
    call, step, launched = _operators_by_step(trace, steps)
    order = stable_order(call)
    call, step, launched = call[order], step[order], launched[order]
    again = (call[1:] == call[:-1]) & (step[1:] == step[:-1] + 1)
    one, two, at = launched[:-1][again], launched[1:][again], step[1:][again]
    either = [np.bincount(at[only], minlength=len(steps)) for only in (one & ~two, two & ~one)]
    lost, launches = 2 * int(np.minimum(*either).sum()), int((one | two).sum())
    if lost < MIN_LOST * max(len(steps) - 1, 1) or lost <= LOST_SHARE * launches:
        return []
    issue = f"{trace.path}: {format_share(lost / launches)} of the operators that launch work did so in one step only"
    return [HealthNote(issue, "launches are missing, so no finding about the host uses this time", "error")]


def _operators_by_step(trace: RankTrace, steps: Table) -> tuple[Array, Array, Array]:
    """Calls of operators in steps, by time: each as a number that its likes in other steps have too, its step, and
    whether it launched work. An operator that is called more often, with these shapes, in another step has other
    numbers there.
    """
    events = trace.events
    at_ns, external = events["ts_ns"], events["external_id"]
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (external != NULL))
    step = intervals.row_at((steps["mark_ns"], steps["mark_end_ns"]), at_ns[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    _, kind = distinct(events["name"][rows], shapes_of(trace, rows))
    order = stable_order(kind)
    part = kind[order] * len(steps) + step[order]
    first = np.flatnonzero(np.diff(part, prepend=-1))
    count = np.diff(first, append=len(rows))
    (_, times), alike = distinct(part[first] // max(len(steps), 1), count)
    numbers = np.cumsum(times) - times  # the first of each kind that is called so many times
    call = np.empty(len(rows), np.int64)
    call[order] = np.arange(len(rows)) + np.repeat(numbers[alike] - first, count)
    return call, step, np.isin(external[rows], _above_work(trace))


def _above_work(trace: RankTrace) -> Array:
    """External ids of the operators above each device operation and each launch call: one half suffices, as a record
    lost at random leaves the other.
    """
    events, external = trace.events, trace.events["external_id"]
    rows = np.flatnonzero(of_kinds(events["kind"], DEVICE_KINDS))
    launch = launch_rows(trace)[rows]
    called = rows_of(trace, Kind.RUNTIME, is_launch(trace.strings))
    return np.concatenate((external[rows], external[launch[launch >= 0]], external[called]))


def knows_all_work(trace: RankTrace) -> bool:
    """True where the calls behind the device's work were recorded, and none launches a kernel."""
    called = matches(_GRAPH, trace.strings) | is_launch(trace.strings)
    return bool((launch_rows(trace)[device_rows(trace)] >= 0).any()) and not len(rows_of(trace, Kind.RUNTIME, called))


def _ended_early(trace: RankTrace, steps: Table) -> Array:
    """Mask of steps in which the record of runtime calls, or of operators, has ended; shape (steps,).

    It has where a later step holds none. The step in which it ends counts where it holds fewer than any other step and
    goes on for longer after the last record, since some steps may also evaluate or save.
    """
    events, count = trace.events, len(steps)
    ended = np.zeros(count, bool)
    for kind in (Kind.RUNTIME, Kind.CPU_OP) if count else ():
        at = events["ts_ns"][events["kind"] == kind]
        step = intervals.row_at(steps.bounds, at)
        at, step = at[step >= 0], step[step >= 0]
        held = np.bincount(step, minlength=count)
        if not held.any():
            continue
        last = int(np.flatnonzero(held)[-1])
        ended[last + 1 :] = True
        last_ns = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(last_ns, step, at)
        tail_ns = steps["end_ns"] - last_ns
        before = np.flatnonzero(held[:last])
        fewest = held[before].min() if len(before) else 0
        fewer = held[last] < min((1 - FEWER_SHARE) * fewest, fewest - MIN_LOST + 1)
        ended[last] |= last + 1 < count or bool(fewer and tail_ns[last] > tail_ns[before].max())
    return ended


def _torn_on_cpu(trace: RankTrace, steps: Table) -> Array:
    """Mask of a CPU rank's steps with missing records or operators that overlap in part, shape (steps,): operators are
    all that shows its work, and those inside a lost one look like others. Numbers of whole steps are of another window.
    """
    torn = np.zeros(len(steps), bool)
    if not len(steps) or accelerator(trace).kind != "cpu":
        return torn
    holes = zip(trace.lost_records.bounds, _overlaps_in_part(trace), strict=True)
    start, end = map(np.concatenate, holes)
    first, last = (intervals.row_at(steps.bounds, at) for at in (start, np.maximum(end - 1, start)))
    apart = (first >= 0) & (last >= 0) & (steps["index"][last] - steps["index"][first] > 1)
    for step in (first, last):
        torn[step[(step >= 0) & ~apart]] = True
    return torn


def _overlaps_in_part(trace: RankTrace) -> Intervals:
    """Parts of operators beyond the end of those around them, or behind the start of their thread's next: a thread runs
    one at a time, unless its clock was set meanwhile.
    """
    events, parts = trace.events, [intervals.EMPTY]
    operators = np.flatnonzero((events["kind"] == Kind.CPU_OP) & ~matches(LIBRARY, trace.strings)[events["name"]])
    for track in np.unique(events["track"][operators]).tolist():
        start_ns, end_ns = times(events, operators[events["track"][operators] == track])
        cut_ns, _, _ = intervals.nested(start_ns, end_ns)
        beyond = end_ns - cut_ns > RESOLUTION_NS
        parts.append((cut_ns[beyond], end_ns[beyond]))
    return intervals.merge(*parts)


def _lost_launches(trace: RankTrace, steps: Table) -> tuple[Array, Array, Array]:
    """Launches without device work, all launches, and the longest run of lost ones per step; shape (steps,). The launch
    of a graph counts as the launches of its kernels.
    """
    events, count = trace.events, len(steps)
    none = np.zeros(count, np.int64)
    given = (events["correlation"] != NULL) & (events["correlation"] != 0)
    calls = np.flatnonzero((events["kind"] == Kind.RUNTIME) & given)
    # Copy calls are not counted: copies within the host, and of no bytes, never leave a device record.
    launches_one = is_launch(trace.strings)
    calls = calls[(launches_one | matches(_GRAPH, trace.strings))[events["name"][calls]]]
    if not count or not len(calls):
        return none, none, none
    done = events["correlation"][of_kinds(events["kind"], DEVICE_KINDS) & given]
    linked = np.isin(events["correlation"][calls], done)
    if (launch_rows(trace) >= 0).sum() <= LINKED_SHARE * len(done):
        return none, none, none
    captured = ~linked & intervals.contains(captures(trace), events["ts_ns"][calls])
    calls, linked = calls[~captured], linked[~captured]
    at, unlinked = events["ts_ns"][calls], ~linked
    step = intervals.row_at(steps.bounds, at)
    inside = step >= 0
    work, graphs = np.ones(len(calls), np.int64), np.flatnonzero(~launches_one[events["name"][calls]])
    if len(graphs):
        work[graphs] = _work_of_a_call(events["name"][calls[graphs]], events["correlation"][calls[graphs]], done)
    lost, launches = (np.bincount(step[of], work[of], count).astype(np.int64) for of in (inside & unlinked, inside))
    in_a_row = _most_in_a_row(at[inside], unlinked[inside], step[inside], count)
    np.maximum.at(in_a_row, step[inside & unlinked], work[inside & unlinked])
    return lost, launches, in_a_row


def _work_of_a_call(name: Array, correlation: Array, done: Array) -> Array:
    """Pieces of device work per launch call; 0 where no call of its name is linked to any, as with graphs recorded as a
    whole. `done`: correlation of each piece of work.
    """
    number, times = np.unique(done, return_counts=True)
    pieces = np.maximum(lookup(number, times, correlation), 0)
    work = np.zeros(len(pieces), np.int64)
    for each in np.unique(name).tolist():
        linked = pieces[(name == each) & (pieces > 0)]
        work[name == each] = round(float(np.median(linked))) if len(linked) else 0
    return work


def _most_in_a_row(at_ns: Array, lost: Array, step: Array, count: int) -> Array:
    """Longest run of lost launches in each step, shape (`count`,)."""
    order = np.argsort(at_ns, kind="stable")
    lost, step = lost[order], step[order]
    number = np.cumsum(~lost | (np.diff(step, prepend=-1) != 0))  # of the row that a launch is in
    first = np.searchsorted(number, number)
    length = np.arange(len(number)) - first + lost[first]
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, step[lost], length[lost])
    return longest


def longest_run(sound: Array) -> tuple[int, int]:
    """Half-open range of the longest run of true values, the first among equals; (0, 0) for none."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], sound, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return 0, 0
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]), int(ends[longest])

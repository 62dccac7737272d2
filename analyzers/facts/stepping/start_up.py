"""One-off work of a process: context creation, module loading, profiler start and stop.

CUDA creates the context in the first call that needs it, and loads a module at its first kernel's launch (CUDA
programming guide, "Initialization" and "Lazy Loading"); cuDNN and cuBLAS allocate when their handles are made. The
profiler starts before the first work of its first step and flushes its buffers after the last work of its last. Whether
such a call recurs in every step is decided later, by comparing steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.gaps import busy
from ddprof.analyzers.facts.model import GAPS, ONCE, Once, Work, of_cause
from ddprof.analyzers.facts.names import matches, rows_of, times
from ddprof.analyzers.facts.stepping.device_time import NEVER
from ddprof.analyzers.facts.work import FULL_QUEUE_NS
from ddprof.causes import CAUSE_CODE
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table, among, concat, first_rows, of_kinds

# First runs of code that is compiled when it runs: TorchScript, torch.compile, kernels that are tuned; and captures of
# graphs of kernels.
#
# An operator whose first runs took far longer than every later one compiled in them: Inductor in the first,
# TorchScript's profiling executor in the first two. Nothing need be recorded inside. Where a region runs but once in
# the recording, only the records that torch.compile makes of its own phases say so.

TIMES_LATER = 10.0  # an order of magnitude: what later runs do is not what took the time
LEAST_NS = 5_000_000  # no compiler is faster; operators that are long for other reasons are shorter
MOST_FIRST = 2  # runs that compile: one to record the types, one to generate code
# Operators of PyTorch itself: the first of a step may prepare its batch, and none compiles.
_EAGER = re.compile(r"^(?:aten|c10d|cudnn|record_param_comms|ProfilerStep)")
# Phases of torch.compile (torch._dynamo.utils.dynamo_timed); none runs where the code is compiled already.
_PHASES = re.compile(r"\(dynamo_timed\)$")
_CAPTURES, _CAPTURED = (re.compile(rf"^(?:cuda|hip|cu)Stream{end}Capture") for end in ("Begin", "End"))
_INSTANTIATES = re.compile(r"^(?:cuda|hip|cu)GraphInstantiate")
# Causes whose spans say what the host did inside: not compiling.
_OTHERWISE = ("dataloader", "checkpoint", "host_sync")


def first_runs(trace: RankTrace, threads: Array, host_spans: Table) -> Table:
    """ONCE of the first runs of operators on the training threads."""
    events = trace.events
    trains = among(events["track"], threads)
    calls = np.flatnonzero((events["kind"] == Kind.RUNTIME) & trains)
    code = (events["kind"] == Kind.CPU_OP) & trains & ~matches(_EAGER, trace.strings)[events["name"]]
    phases = of_kinds(events["kind"], (Kind.CPU_OP, Kind.ANNOTATION)) & trains
    phases &= matches(_PHASES, trace.strings)[events["name"]]
    long = _long_at_first(events, np.flatnonzero(code), events["ts_ns"][calls])
    runs = intervals.union(*times(events, np.concatenate((long, np.flatnonzero(phases)))))
    other = intervals.merge(times(events, calls), of_cause(host_spans, *_OTHERWISE).bounds)
    start, end = intervals.subtract(runs, other)
    return ONCE.table({"start_ns": start, "end_ns": end, "kind": Once.FIRST_RUN, "name": 0})


def captures(trace: RankTrace) -> Intervals:
    """Intervals in which a graph is captured: launches are noted, and nothing runs (CUDA programming guide).
    The last capture lasts to the end of the trace where that does not hold its end.
    """
    events = trace.events
    begins, ends = (events["ts_ns"][_runtime(trace, mark)] for mark in (_CAPTURES, _CAPTURED))
    if not len(begins):
        return intervals.EMPTY
    last = int(events["ts_ns"].max()) + 1
    return intervals.union(begins, np.append(ends, last)[np.searchsorted(ends, begins)])


def capturing(trace: RankTrace) -> Intervals:
    """Intervals in which graphs are captured and made ready to run."""
    return intervals.merge(captures(trace), times(trace.events, _runtime(trace, _INSTANTIATES)))


def _runtime(trace: RankTrace, call: re.Pattern[str]) -> Array:
    """Rows of the calls of the runtime of this name."""
    return rows_of(trace, Kind.RUNTIME, matches(call, trace.strings))


def _long_at_first(events: Table, rows: Array, calls_ns: Array) -> Array:
    """Rows of the first runs of a name that took far longer than all its later runs, of those that call the device each
    time: what runs on the host once and on the device later is two things of one name.
    """
    start_ns, end_ns = times(events, rows)
    rows = rows[np.searchsorted(calls_ns, start_ns) < np.searchsorted(calls_ns, end_ns)]
    names = np.unique(events["name"][rows[events["dur_ns"][rows] >= LEAST_NS]])
    once = []
    for name in names.tolist():
        runs = rows[events["name"][rows] == name]
        dur = events["dur_ns"][runs]
        for first in range(1, min(MOST_FIRST, len(runs) - 1) + 1):
            if dur[:first].min() >= max(LEAST_NS, TIMES_LATER * dur[first:].max()):
                once.append(runs[:first])
                break
    return np.concatenate(once) if once else np.zeros(0, np.int64)


# Calls of the CUDA and HIP runtime and driver API that create, load or register; none belongs to a steady step.
_CREATION = re.compile(
    r"^(?:cuda|hip|cu)(?:Init|StreamCreate|EventCreate|Module(?:Load|GetFunction|GetGlobal)|Library(?:Load|Get)"
    r"|KernelGetFunction|FuncGetAttributes|FuncSetAttribute|CtxCreate|CtxSetLimit|DevicePrimaryCtx|GetDeviceCount"
    r"|SetDevice|HostRegister|DeviceGet|GetDeviceProperties|GetDriverEntryPoint|GetProcAddress|Ipc|MemPoolCreate"
    r"|DeviceEnablePeerAccess|DeviceCanAccessPeer)"
)
# Causes of idle time that start-up explains.
_HOSTS_OWN = ("host_launch", "host_sync", "allocator", "dataloader", "unknown")
WORTH_SAYING = 0.03  # of a step, from which a finding is a warning (docs/verdict.md)
_DEVICE_SYNC = re.compile(r"DeviceSynchronize|CtxSynchronize", re.IGNORECASE)
_STEP_MARK = re.compile(r"^ProfilerStep[#*]")  # an operator in traces of PyTorch 1.8 and 1.9


def once_spans(trace: RankTrace, steps: Table, tables: Mapping[str, Table], threads: Array) -> Table:
    """ONCE, by start. `tables`: the rank's device_ops and host_spans; `threads`: the training host tracks."""
    ops, spans = tables["device_ops"], tables["host_spans"]
    events = trace.events
    creation = rows_of(trace, Kind.RUNTIME, matches(_CREATION, trace.strings))
    allocated, fetched = of_cause(spans, "allocator"), of_cause(spans, "dataloader")
    overhead = np.flatnonzero(events["kind"] == Kind.OVERHEAD)
    # While the device still runs earlier work, calls that wait for it load nothing.
    held = intervals.union(steps["mark_ns"][:1], steps["start_ns"][:1])
    parts = [
        _rows(times(events, creation), Once.CONTEXT, events["name"][creation]),
        _rows(allocated.bounds, Once.MEMORY, allocated["name"]),
        _loads(ops, held),
        _rows(fetched.bounds, Once.BATCH, fetched["name"]),
        _rows(times(events, overhead), Once.OVERHEAD, events["name"][overhead]),
        _edges(trace, steps, tables, threads),
        first_runs(trace, threads, spans),
        _rows(capturing(trace), Once.CAPTURE, 0),
    ]
    return concat(ONCE, parts).ordered()


def _rows(spans: Intervals, kind: Once, name: Array | int) -> Table:
    """ONCE of a kind; spans without length are left out."""
    rows = ONCE.table({"start_ns": spans[0], "end_ns": spans[1], "kind": kind, "name": name})
    return rows.take(spans[1] > spans[0])


def _loads(ops: Table, held: Intervals) -> Table:
    """Launches of each kernel's first occurrence that took long while nothing was computed or `held` the device.

    A copy loads no code, but the first call of all creates the context.
    """
    order = np.argsort(ops["start_ns"], kind="stable")
    rows = order[first_rows(ops["name"][order])]
    rows = rows[ops["launch_ns"][rows] != NULL]  # else its code was there before the recording
    first_ns = ops["launch_ns"][rows].min(initial=NEVER)
    rows = rows[(ops["work"][rows] != Work.COPY) | (ops["launch_ns"][rows] == first_ns)]
    rows = rows[ops["launch_end_ns"][rows] - ops["launch_ns"][rows] > FULL_QUEUE_NS]
    rows = rows[np.argsort(ops["launch_ns"][rows], kind="stable")]
    calls = ops["launch_ns"][rows], ops["launch_end_ns"][rows]
    free = intervals.subtract(intervals.union(*calls), intervals.merge(busy(ops, Work.COMPUTE), held))
    return _rows(free, Once.MODULE, ops["name"][rows[np.searchsorted(calls[0], free[0], side="right") - 1]])


def _edges(trace: RankTrace, steps: Table, tables: Mapping[str, Table], threads: Array) -> Table:
    """Time from the first mark to the first work and from the last work to the last mark, in which the profiler starts
    and stops. Work is any event of the device, and of the training threads except step marks and device
    synchronisation.
    """
    events, ops, spans = trace.events, tables["device_ops"], tables["host_spans"]
    idle = matches(_DEVICE_SYNC, trace.strings) | matches(_STEP_MARK, trace.strings)
    does = of_kinds(events["kind"], (Kind.CPU_OP, Kind.RUNTIME)) & ~idle[events["name"]]
    does &= among(events["track"], threads)
    if not len(steps) or not does.any():
        return ONCE.empty()
    start, end = times(events, does)
    opens, closes = int(steps["mark_ns"][0]), int(steps["mark_end_ns"][-1])
    after, before = start[start >= opens], np.concatenate((end, ops["end_ns"]))
    first = int(after.min()) if len(after) else opens
    last = int(before[before <= closes].max(initial=opens))
    named = intervals.union(*spans.bounds_of(spans["cause"] != CAUSE_CODE["host_sync"]))
    lead, tail = (intervals.complement(named, *edge) for edge in ((opens, first), (last, closes)))
    return concat(ONCE, [_rows(lead, Once.STARTING, 0), _rows(tail, Once.STOPPING, 0)])


def start_up(once: Table, steps: Table) -> Intervals:
    """Start-up and the profiler's edges and work on a rank with a single step, where nothing is known to recur.

    Of allocations, those count that are longer than all shorter ones together. Batches count only beside other start-up
    work, as workers start with the process. Empty for several steps, which are compared instead (job/steps/steady.py).
    """
    if len(steps) != 1:
        return intervals.EMPTY
    memory = once["kind"] == Once.MEMORY
    length = np.where(memory, once["end_ns"] - once["start_ns"], 0)
    order = np.argsort(-length, kind="stable")
    outweighs = length[order] > length.sum() - np.cumsum(length[order])
    heavy = np.zeros(len(once), bool)
    heavy[order] = np.logical_and.accumulate(outweighs)
    starting = np.isin(once["kind"], (Once.CONTEXT, Once.MODULE, Once.FIRST_RUN, Once.CAPTURE)) | (memory & heavy)
    begin_ns, end_ns = int(steps["mark_ns"][0]), int(steps["mark_end_ns"][-1])
    spans = intervals.clip(intervals.union(*once.bounds_of(starting)), begin_ns, end_ns)
    if intervals.length(spans) >= WORTH_SAYING * (end_ns - begin_ns):
        starting |= once["kind"] == Once.BATCH
    starting |= np.isin(once["kind"], (Once.STARTING, Once.STOPPING, Once.OVERHEAD))  # the profiler's own
    return intervals.clip(intervals.union(*once.bounds_of(starting)), begin_ns, end_ns)


def book_start_up(gaps: Table, starting: Intervals) -> Table:
    """GAPS with idle time during start-up booked to "other"."""
    if not len(starting[0]) or not len(gaps):
        return gaps
    is_hosts = np.isin(gaps["cause"], [CAUSE_CODE[cause] for cause in _HOSTS_OWN])
    split = gaps.take(is_hosts)
    rest = intervals.complement(starting, int(gaps["start_ns"].min()), int(gaps["end_ns"].max()))
    pieces = [gaps.take(~is_hosts)]
    for part, booked in ((starting, {"cause": CAUSE_CODE["other"]}), (rest, {})):
        start, end, row, _ = intervals.intersect_rows(split.bounds, part)
        pieces.append(split.take(row).replace(start_ns=start, end_ns=end, **booked))
    return concat(GAPS, pieces).ordered()

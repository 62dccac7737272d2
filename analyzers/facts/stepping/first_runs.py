"""First runs of code that is compiled when it runs: TorchScript, torch.compile, kernels that are tuned; and captures of
graphs of kernels.

An operator whose first runs took far longer than every later one compiled in them: Inductor in the first, TorchScript's
profiling executor in the first two. Nothing need be recorded inside. Where a region runs but once in the recording,
only the records that torch.compile makes of its own phases say so.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.events import rows_of, times
from ddprof.analyzers.facts.model import ONCE, Once
from ddprof.analyzers.facts.names import matches
from ddprof.causes import CAUSE_CODE
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, among

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
    phases = np.isin(events["kind"], (Kind.CPU_OP, Kind.ANNOTATION)) & trains
    phases &= matches(_PHASES, trace.strings)[events["name"]]
    long = _long_at_first(events, np.flatnonzero(code), events["ts_ns"][calls])
    runs = intervals.union(*times(events, np.concatenate((long, np.flatnonzero(phases)))))
    otherwise = host_spans.take(np.isin(host_spans["cause"], [CAUSE_CODE[cause] for cause in _OTHERWISE]))
    other = intervals.merge(times(events, calls), otherwise.bounds)
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

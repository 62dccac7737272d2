"""RankFacts: the part of a rank that is kept after its raw events are dropped (a few MB at most).

All times are int64 ns on the rank's own clock. Tables refer to one another by row number; text is dictionary-encoded in
`RankFacts.strings`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ddprof.causes import CAUSE_CODE
from ddprof.intervals import Intervals, contains, overlap, subtract, union
from ddprof.model import (
    MODULE_SPANS,
    MODULE_STACKS,
    SCRIPT_FRAMES,
    SCRIPT_SPANS,
    SCRIPT_STACKS,
    SCRIPT_TOTALS,
    TRACKS,
    Device,
    HealthNote,
    Identity,
    ProcessGroup,
)
from ddprof.sidecar import Sidecar
from ddprof.tables import Array, Column, Schema, Table


class Work(enum.IntEnum):
    """Kind of a device operation, in order of precedence: compute hides communication, communication hides copies."""

    COMPUTE = 0
    COMM = 1
    COPY = 2  # between host and device; copies inside the device are compute


class Phase(enum.IntEnum):
    """Part of a training step on the host."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


class Once(enum.IntEnum):
    """One-off work of a process (facts/stepping/start_up.py)."""

    CONTEXT = 0  # creating the context, streams and events, registering memory
    MEMORY = 1  # allocation: of a context that an allocation creates, of cuDNN's and cuBLAS's handles
    MODULE = 2  # loading the code of a kernel at its first launch
    BATCH = 3  # fetching a batch; the first one waits until the workers have started
    OVERHEAD = 4  # what the profiler marks as its own
    STARTING = 5  # before the first work of the first step: the profiler starts
    STOPPING = 6  # after the last work of the last step: the profiler stops
    FIRST_RUN = 7  # running what is compiled when it first runs
    CAPTURE = 8  # capturing and instantiating graphs of kernels: launches are noted, and nothing runs


class GradientAct(enum.IntEnum):
    """An action of a rank on the gradients of its parameters."""

    STORED = 0  # by autograd, where the parameter had none
    ADDED = 1  # by autograd, to the one that the parameter had
    ZEROED = 2  # by an optimizer's zero_grad
    TOUCHED = 3  # perhaps: the script changes tensors in place, or takes norms, outside the passes


SPANS = Schema("spans", Column("start_ns", "int64", "start"), Column("end_ns", "int64", "end"))
NAMED_SPANS = Schema("named_spans", *SPANS.columns, Column("name", "int32", "range, call or kernel"))

STEPS = Schema(
    "steps",
    Column("index", "int64", "step number as marked; 0, 1, ... where inferred"),
    Column("start_ns", "int64", "start of the step: on a device of the work that its host launches in it"),
    Column("end_ns", "int64", "start of the next step, or the end of this one"),
    Column("mark_ns", "int64", "when the host passes the mark that opens the step"),
    Column("mark_end_ns", "int64", "when the host passes the mark of the next step, or the end of this one"),
)

DEVICE_OPS = Schema(
    "device_ops",
    Column("start_ns", "int64", "start on the device"),
    Column("end_ns", "int64", "end on the device"),
    Column("track", "int32", "stream, as a row of the trace's tracks"),
    Column("work", "uint8", "facts.model.Work"),
    Column("name", "int32", "kernel name"),
    Column("launch_ns", "int64", "start of the host call that launched it", nullable=True),
    Column("launch_end_ns", "int64", "end of that call", nullable=True),
    Column("thread", "int64", "host track of that call", nullable=True),
    Column("operator", "int32", "innermost CPU operator above the launch; -2147483648 if unknown"),
    Column("shape", "int32", "shapes of that operator; -2147483648 if not recorded"),
    Column("comm", "int64", "row of the comms table", nullable=True),
    Column("size_bytes", "int64", "bytes of a copy", nullable=True),
)

COMMS = Schema(
    "comms",
    Column("op", "uint8", "index into names.COLLECTIVE_OPS"),
    Column("group", "int32", "index into RankFacts.process_groups; -2147483648 if unknown"),
    Column("seq", "int64", "sequence number within the group", nullable=True),
    Column("start_ns", "int64", "start: of the kernel, or of the call on a CPU rank (its arrival)"),
    Column("end_ns", "int64", "end"),
    Column("launch_ns", "int64", "host call", nullable=True),
    Column("launch_end_ns", "int64", "end of the host call", nullable=True),
    Column("size_bytes", "int64", "message size S of the bus bandwidth rule (total array)", nullable=True),
    Column("in_bytes", "int64", "input of this rank", nullable=True),
    Column("dtype", "int32", "element type"),
    Column("name", "int32", "kernel or annotation name"),
    Column("device_op", "int64", "row of device_ops", nullable=True),
    Column("track", "int32", "stream, or on a CPU rank the backend's thread that executed it"),
)

MESSAGES = Schema(
    "messages",
    Column("comm", "int64", "row of comms whose kernel carries the message"),
    Column("is_send", "bool", "sent (true) or received (false)"),
    Column("peer", "int64", "the other rank: its number, or its place in the group", nullable=True),
    Column("group", "int32", "index into process_groups; -2147483648 if unknown"),
    Column("size_bytes", "int64", "payload", nullable=True),
    Column("tag", "int64", "messages of one pair match only within a tag", nullable=True),
    Column("called_ns", "int64", "start of the host call that asked for it", nullable=True),
    Column("is_lost", "bool", "its own kernel was not recorded: `comm` is the next one, and tells nothing of it"),
)

EXPOSED = Schema(
    "exposed",
    Column("comm", "int64", "row of comms: the communication that holds the device"),
    Column("start_ns", "int64", "no compute runs from here"),
    Column("end_ns", "int64", "to here"),
)

GAPS = Schema(
    "gaps",
    Column("start_ns", "int64", "start of a piece of idle or copy time"),
    Column("end_ns", "int64", "end"),
    Column("cause", "uint8", "code of a cause (ddprof.causes)"),
    Column("next_op", "int64", "device operation that ends the gap", nullable=True),
)

HOST_SPANS = Schema(
    "host_spans",
    Column("start_ns", "int64", "start"),
    Column("end_ns", "int64", "end"),
    Column("thread", "int32", "host track"),
    Column("cause", "uint8", "code of a cause, one of ddprof.causes.SPAN_CAUSES"),
    Column("name", "int32", "range, call or operator"),
    Column("operator", "int32", "innermost CPU operator above a call; -2147483648 if none"),
)

ONCE = Schema(
    "once",
    Column("start_ns", "int64", "start"),
    Column("end_ns", "int64", "end"),
    Column("kind", "uint8", "facts.model.Once"),
    Column("name", "int32", "call, kernel or range; 0 where nothing names it"),
)

STALLS = Schema(
    "stalls",
    Column("start_ns", "int64", "from here the host does nothing that is recorded"),
    Column("end_ns", "int64", "to here"),
    Column("usual_ns", "int64", "how long the host usually takes at that place"),
    Column("name", "int32", "innermost host event around; -2147483648 if none"),
    Column("drains", "bool", "the device has begun all that was launched before the end: it waits for the host"),
)

SCRIPT_CALLS = Schema(
    "script_calls",
    Column("start_ns", "int64", "the script calls a collective of tensors"),
    Column("end_ns", "int64", "the call returns"),
    Column("call", "uint8", "index into facts.script.calls.CALLS: which function of torch.distributed"),
)

PHASES = Schema(
    "phases",
    Column("start_ns", "int64", "start"),
    Column("end_ns", "int64", "end"),
    Column("phase", "uint8", "facts.model.Phase"),
    Column("name", "int32", "range"),
)

SCRIPT_OPERATORS = Schema(
    "script_operators",
    Column("stack", "int64", "row of script_stacks: where the thread was; missing between two samples", nullable=True),
    Column("name", "int32", "operator, of those that no other operator called"),
    Column("in_optimizer", "bool", "called in the optimizer's step; else outside forward, loss and backward too"),
    Column("count", "int64", "calls inside steps"),
    Column("time_ns", "int64", "their time on the host"),
)

HOST_OPERATORS = Schema(
    "host_operators",
    Column("start_ns", "int64", "start of an operator of a CPU rank that no other operator called"),
    Column("dur_ns", "int64", "duration"),
    Column("name", "int32", "operator"),
    Column("shape", "int32", "its shapes; -2147483648 if not recorded"),
)

KERNEL_GROUPS = Schema(
    "kernel_groups",
    Column("name", "int32", "kernel"),
    Column("shape", "int32", "shapes of the operator above it; -2147483648 if not recorded"),
    Column("count", "int64", "launches inside steps"),
    Column("total_ns", "int64", "time"),
    Column("flops", "float64", "floating-point operations, from shapes", nullable=True),
    Column("element_bytes", "int64", "of the first operand, from its recorded type", nullable=True),
    Column("is_gemm", "bool", "matrix product or convolution"),
    Column("is_fp32", "bool", "a gemm whose operands are single precision"),
)

ANOMALY_WORK = Schema(
    "anomaly_work",
    Column("start_ns", "int64", "a search for NaN after a node of the backward pass, or an operator begins"),
    Column("end_ns", "int64", "it ends"),
    Column("share", "float64", "part of it that is there for autograd's anomaly mode"),
    Column("is_check", "bool", "a search; else an operator that writes down the Python stack that called it"),
)

UNUSED_SEARCHES = Schema(
    "unused_searches",
    Column("start_ns", "int64", "DistributedDataParallel looks in the graph for parameters that get no gradient"),
    Column("end_ns", "int64", "it has, and has passed the outputs through a node of its own"),
    Column("gradients", "int64", "parameters that get one before it looks again"),
)

GRADIENTS = Schema(
    "gradients",
    Column("start_ns", "int64", "gradients of one kind come, or something is done with them"),
    Column("end_ns", "int64", "the last of them has, before something else is done"),
    Column("act", "uint8", "GradientAct"),
)

NO_STRING = -(2**31)


@dataclass(frozen=True)
class RankFacts:
    """Everything that later stages know of one rank."""

    identity: Identity
    device: Device
    path: str
    format: str
    has_base_time: bool
    strings: tuple[str, ...]
    step_source: str  # "profiler_step" | "annotation" | "inferred"
    is_device_rank: bool  # False: the training threads are the device (CPU run)
    main_thread: int | None
    steps: Table = field(default_factory=STEPS.empty)
    device_ops: Table = field(default_factory=DEVICE_OPS.empty)
    comms: Table = field(default_factory=COMMS.empty)
    messages: Table = field(default_factory=MESSAGES.empty)
    exposed: Table = field(default_factory=EXPOSED.empty)
    gaps: Table = field(default_factory=GAPS.empty)
    host_spans: Table = field(default_factory=HOST_SPANS.empty)
    once: Table = field(default_factory=ONCE.empty)
    stalls: Table = field(default_factory=STALLS.empty)
    silences: Table = field(default_factory=SPANS.empty)  # no call of the host is open, and nothing recorded
    phases: Table = field(default_factory=PHASES.empty)
    stream_waits: Table = field(default_factory=SPANS.empty)  # calls that make a stream wait; no collective's own
    kernel_groups: Table = field(default_factory=KERNEL_GROUPS.empty)
    host_work: Table = field(default_factory=SPANS.empty)  # the training threads of a CPU rank compute
    host_operators: Table = field(default_factory=HOST_OPERATORS.empty)
    meetings: Table = field(default_factory=NAMED_SPANS.empty)  # barriers, collectives of objects (script/calls.py)
    script_calls: Table = field(default_factory=SCRIPT_CALLS.empty)
    call_waits: Table = field(default_factory=SPANS.empty)  # Python waits for what a call began
    comm_hooks: Table = field(default_factory=NAMED_SPANS.empty)  # DDP's hooks in Python (script/calls.py)
    unit_hooks: Table = field(default_factory=SPANS.empty)  # FSDP's Python around the passes of its units
    engine_passes: Table = field(default_factory=SPANS.empty)  # of autograd, where no range marks backward passes
    anomaly_work: Table = field(default_factory=ANOMALY_WORK.empty)  # empty: the mode is off
    unused_searches: Table = field(default_factory=UNUSED_SEARCHES.empty)
    gradients: Table = field(default_factory=GRADIENTS.empty)
    script_spans: Table = field(default_factory=SCRIPT_SPANS.empty)  # of the threads that launch; all three of model.py
    script_stacks: Table = field(default_factory=SCRIPT_STACKS.empty)
    script_frames: Table = field(default_factory=SCRIPT_FRAMES.empty)
    script_operators: Table = field(default_factory=SCRIPT_OPERATORS.empty)
    script_totals: Table = field(default_factory=SCRIPT_TOTALS.empty)  # of the whole run; other threads and workers too
    module_spans: Table = field(default_factory=MODULE_SPANS.empty)  # of the threads that launch
    module_stacks: Table = field(default_factory=MODULE_STACKS.empty)
    tracks: Table = field(default_factory=TRACKS.empty)  # threads and streams as the file names them
    process_groups: tuple[ProcessGroup, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)  # facts/memory.py
    counts: Mapping[str, int] = field(default_factory=dict)  # events seen, kernels per step, ...
    torn_steps: tuple[int, ...] = ()  # numbers of steps that were recorded in part only; not in `steps`
    sidecar: Sidecar = field(default_factory=Sidecar)
    top: Mapping[str, Any] = field(default_factory=dict)
    health: tuple[HealthNote, ...] = ()

    def spans_of(self, *causes: str) -> Table:
        """The host spans of these causes that touch the host's time of the steps, by start; they may nest."""
        return self._in_steps(of_cause(self.host_spans, *causes), "mark_ns", "mark_end_ns")

    def gaps_of(self, *causes: str) -> Table:
        """The idle or copy time booked to these causes that touches the steps, by start; disjoint."""
        return self._in_steps(of_cause(self.gaps, *causes), "start_ns", "end_ns")

    def _in_steps(self, table: Table, start: str, end: str) -> Table:
        """The rows of a table of spans that touch the time from the first step's start to the last one's end."""
        if not len(table):
            return table
        first, last = self.steps[start][0], self.steps[end][-1]
        return table.take((table["end_ns"] > first) & (table["start_ns"] < last))

    def is_issued_in_steps(self, at_ns: Array) -> Array:
        """Mask of host times between the first step mark and the last; shape of `at_ns`."""
        return np.asarray((at_ns >= self.steps["mark_ns"][0]) & (at_ns < self.steps["mark_end_ns"][-1]))

    @property
    def marks(self) -> Intervals:
        """The host's time of each step, from mark to mark."""
        return self.steps["mark_ns"], self.steps["mark_end_ns"]

    def per_step_us(self, spans: Intervals) -> float:
        """Time of spans on the device inside the steps, us per step."""
        return float(overlap(spans, *self.steps.bounds).sum()) / len(self.steps) / 1e3

    def host_us(self, spans: Intervals) -> float:
        """Time of spans on the host inside the steps, us per step."""
        return float(overlap(spans, *self.marks).sum()) / len(self.steps) / 1e3

    def phase_time(self, phase: Phase) -> Intervals:
        """Intervals of the host in this phase; of optimizers without the passes of closures that these call."""
        spans = union(*self.phases.bounds_of(self.phases["phase"] == phase))
        if phase != Phase.OPTIMIZER:
            return spans
        called = (self.phases["phase"] != phase) & contains(spans, self.phases["start_ns"])
        return subtract(spans, union(*self.phases.bounds_of(called)))


def of_cause(table: Table, *causes: str) -> Table:
    """Rows of GAPS or HOST_SPANS with one of these causes."""
    if not len(table):
        return table
    is_one = np.zeros(len(table), bool)
    for cause in causes:  # a few: np.isin costs more than all of them on the tables of one rank
        is_one |= table["cause"] == CAUSE_CODE[cause]
    return table.take(is_one)


def occupied(cause: str, spans: Intervals, thread: Array | int, name: Array | int) -> Table:
    """HOST_SPANS of one cause, each on its thread and with its name, or all on one and with one."""
    columns = {"start_ns": spans[0], "end_ns": spans[1], "thread": thread, "name": name}
    return HOST_SPANS.table({**columns, "cause": CAUSE_CODE[cause], "operator": NO_STRING})


TABLES: dict[str, Schema] = {
    each.name: empty.schema
    for each in fields(RankFacts)
    if callable(each.default_factory) and isinstance(empty := each.default_factory(), Table)
}

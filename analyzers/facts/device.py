"""Device operations of a rank: stream and launching host call of each."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ddprof.analyzers.facts.model import DEVICE_OPS, NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import is_comm_kernel, matches, times
from ddprof.derived_once import remembered
from ddprof.model import DEVICE_KINDS, Device, Kind, RankTrace
from ddprof.tables import NULL, Array, Table, of_kinds

# Prefixes of the runtimes' calls: CUDA and its driver API, HIP, Ascend's ACL, Level Zero.
_CALLS_OF = {
    "cuda": re.compile(r"^cu(?:da)?[A-Z]"),
    "rocm": re.compile(r"^hip[A-Z]"),
    "npu": re.compile(r"^acl[A-Zr]"),
    "xpu": re.compile(r"^ze[A-Z]"),
}
_HOST_COPY = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost|HtoA|AtoH|HtoH|H2D|D2H", re.IGNORECASE)
_PEER_COPY = re.compile(r"PtoP|PeerToPeer", re.IGNORECASE)


def accelerator(trace: RankTrace) -> Device:
    """The rank's device, named by the calls of its runtime where the header names none but device events exist."""
    if trace.device.kind != "cpu" or not bool(of_kinds(trace.events["kind"], DEVICE_KINDS).any()):
        return trace.device
    called = np.unique(trace.events["name"][trace.events["kind"] == Kind.RUNTIME])
    counts = {kind: int(matches(calls, trace.strings)[called].sum()) for kind, calls in _CALLS_OF.items()}
    most = max(counts, key=lambda kind: counts[kind])
    return replace(trace.device, kind=most if counts[most] else "unknown")


def device_ops(trace: RankTrace) -> tuple[Table, Array]:
    """Device operations sorted by start, and the event row of each (shape (n,), int64).

    Memsets and copies inside the device count as compute; copies between devices as communication.
    """
    events, rows = trace.events, device_rows(trace)
    launch = launch_rows(trace)[rows]
    has_launch = launch >= 0
    copy = lookup(trace.copies["row"], np.arange(len(trace.copies)), rows)
    start, end = times(events, rows)
    operator = _operators(trace, rows, launch)
    # A single launch call may be lost: the operator that made it ran at that time.
    caller = np.where(has_launch | ~has_launch.any(), launch, operator)
    called, returned = times(events, caller)
    is_called = caller >= 0
    table = DEVICE_OPS.table(
        {
            "start_ns": start,
            "end_ns": end,
            "track": events["track"][rows],
            "work": _work(trace, rows),
            "name": events["name"][rows],
            "launch_ns": np.where(is_called, np.where(has_launch, called, returned), NULL),
            "launch_end_ns": np.where(is_called, returned, NULL),
            "thread": np.where(is_called, events["track"][caller].astype(np.int64), NULL),
            "operator": np.where(operator >= 0, events["name"][operator], NO_STRING),
            "shape": _shapes(trace, rows),
            "comm": NULL,
            "size_bytes": np.append(trace.copies["size_bytes"], NULL)[copy],  # row -1 is none
        }
    )
    return table, rows


def _work(trace: RankTrace, rows: Array) -> Array:
    events = trace.events
    kind, name = events["kind"][rows], events["name"][rows]
    comm = is_comm_kernel(trace.strings)[name] & (kind == Kind.KERNEL)
    comm |= (kind == Kind.KERNEL) & np.isin(rows, trace.collectives["row"])
    comm |= (kind == Kind.MEMCPY) & matches(_PEER_COPY, trace.strings)[name]
    copy = (kind == Kind.MEMCPY) & matches(_HOST_COPY, trace.strings)[name]
    return np.where(comm, Work.COMM, np.where(copy, Work.COPY, Work.COMPUTE))


def device_rows(trace: RankTrace) -> Array:
    """Rows of the events of devices, in the order of DEVICE_OPS."""
    return np.flatnonzero(of_kinds(trace.events["kind"], DEVICE_KINDS) & (trace.events["dur_ns"] >= 0))


@remembered
def launch_rows(trace: RankTrace) -> Array:
    """Row of the runtime call with the correlation id of each event of a device; -1 where there is none, and for all
    other events.
    """
    events = trace.events
    kind, correlation = events["kind"], events["correlation"]
    runtime = np.flatnonzero((kind == Kind.RUNTIME) & (correlation != NULL) & (correlation != 0))
    rows = np.flatnonzero(of_kinds(kind, DEVICE_KINDS))
    calls = np.full(len(events), -1, np.int32)
    calls[rows] = lookup(correlation[runtime], runtime, correlation[rows])
    return calls


def lookup(keys: Array, values: Array, wanted: Array) -> Array:
    """The value of the first key equal to each of `wanted`; -1 where there is none or `wanted` is NULL."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[at] == wanted) & (wanted != NULL), values[at], -1)


def _operators(trace: RankTrace, rows: Array, launch: Array) -> Array:
    """Row of the CPU operator above each launch, by External id of the device event, else of the call; -1: none."""
    events = trace.events
    cpu = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["external_id"] != NULL))
    external = np.where(
        (events["external_id"][rows] == NULL) & (launch >= 0),
        events["external_id"][launch],
        events["external_id"][rows],
    )
    return lookup(events["external_id"][cpu], cpu, external)


def _shapes(trace: RankTrace, rows: Array) -> Array:
    """Recorded shapes (string index) of each operation's operator; NO_STRING where none were recorded."""
    external, operators = trace.events["external_id"], trace.operators
    at = lookup(external[operators["row"]], np.arange(len(operators)), external[rows])
    return np.append(operators["dims"], NO_STRING)[at]  # row -1 is none


# Calls that return only when the device has done what they started: copies, and under CUDA_LAUNCH_BLOCKING=1 all.
#
# A synchronising call after each kernel is another thing: there the launch call itself returns early.

# Of the kernels: at most 5 % on 29 recordings of V100 to H200 and MI300X (2026-11-28), where calls were slow by chance.
# Copies inside the device and memsets count among them, and need not wait.
MOST = 0.8
FEWEST = 20  # kernels; fewer are chance
# How long before the recorded end of what it waited for a call may return. A copy from pageable memory returns when its
# last part lies in the driver's pinned buffer: 5 to 17 us before its end on an H200 (64 copies, 2026-11-28).
RETURNS_EARLY_NS = 20_000
HIDES = "launch calls wait for their kernels, which hides what else the device waits for"


@remembered
def waiting_launches(ops: Table) -> Array:
    """Mask of the device operations (DEVICE_OPS) whose launch call waited for their end: none where not nearly all
    kernels are such.
    """
    waited = (ops["work"] != Work.COPY) & waited_for(ops)
    computing = waited[(ops["work"] == Work.COMPUTE) & (ops["launch_ns"] != NULL)]
    is_usual = len(computing) >= FEWEST and computing.sum() >= MOST * len(computing)
    return waited if is_usual else np.zeros(len(ops), bool)


def waited_for(ops: Table) -> Array:
    """Mask of the device operations (DEVICE_OPS) whose call returned when they were done (copies: or nearly so), after
    they had begun: an asynchronous call returns before.
    """
    returns_ns, early_ns = ops["launch_end_ns"], np.where(ops["work"] == Work.COPY, RETURNS_EARLY_NS, 0)
    held = (returns_ns > ops["start_ns"]) & (returns_ns >= ops["end_ns"] - early_ns)
    return np.asarray(held & (ops["launch_ns"] != NULL) & (ops["launch_ns"] <= ops["start_ns"]))


@remembered
def launches_wait(facts: RankFacts) -> bool:
    """True where nearly all launch calls of a rank wait for their kernels."""
    return bool(waiting_launches(facts.device_ops).any())

"""RankTrace to RankFacts: the map step. Pure; one rank at a time; safe to run in any process."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.comms import device_comms
from ddprof.analyzers.facts.completeness import complete_steps
from ddprof.analyzers.facts.cpu.rank import cpu_facts
from ddprof.analyzers.facts.device import device_ops
from ddprof.analyzers.facts.early import describe_early, early_comms
from ddprof.analyzers.facts.gaps import busy, exposed_comm, find_gaps, unexplained
from ddprof.analyzers.facts.host import host_spans, phases, stream_waits
from ddprof.analyzers.facts.kernels import kernel_groups, memory_summary
from ddprof.analyzers.facts.model import (
    COMMS,
    DEVICE_OPS,
    EXPOSED,
    GAPS,
    HOST_WORK,
    KERNEL_GROUPS,
    MESSAGES,
    STALLS,
    RankFacts,
    Work,
)
from ddprof.analyzers.facts.names import is_wait_event
from ddprof.analyzers.facts.stalls import host_stalls
from ddprof.analyzers.facts.stepping.device_time import in_device_time
from ddprof.analyzers.facts.stepping.once import book_start_up, once_spans, start_up
from ddprof.analyzers.facts.stepping.steps import find_steps, step_marks
from ddprof.causes import CAUSE_CODE
from ddprof.intervals import Intervals
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import NULL, Array, Table
from ddprof.units import format_share, format_us

OUTSIDE_SHARE = 0.05  # of the device's work; less of it outside every step is not worth a note


def rank_facts(trace: RankTrace) -> RankFacts:
    """All facts of one rank. Never raises on odd content: what cannot be judged becomes a health note."""
    steps, source, main, notes = find_steps(trace)
    # A rank whose device left no events is no CPU rank: where its device's time went is unknown, whatever its host did.
    is_device = trace.device.kind != "cpu" or bool(np.isin(trace.events["kind"], DEVICE_KINDS).any())
    steps, whole, incomplete = complete_steps(trace, steps)
    # Without marks nothing says which steps the missing events of a damaged file were of.
    whole = whole and not (source == "inferred" and any(note.severity == "error" for note in trace.health))
    notes += incomplete
    if is_device:
        tables, steps = _device_tables(trace, steps, main, source != "inferred" or len(steps) > 1)
    else:
        tables = _host_tables(trace, steps, main)
    if (is_device and not (whole and len(tables["device_ops"]))) or trace.top.get("records") == "communication":
        tables["gaps"] = unexplained(tables["gaps"])
    threads = _launching_threads(tables["device_ops"], main)
    tables["once"] = once_spans(trace, steps, tables, threads)
    starting = start_up(tables["once"], steps)
    tables["gaps"] = book_start_up(tables["gaps"], starting)
    tables["host_spans"] = _recurring(tables["host_spans"], starting)
    notes += _outside_note(tables["device_ops"], steps)
    notes += _busy_before_note(steps) if source == "inferred" and len(steps) == 1 else []
    if not len(steps):
        notes.append(HealthNote(f"{trace.path}: no event with a duration", "nothing can be said of this rank", "error"))
    return RankFacts(
        identity=trace.identity,
        device=trace.device,
        path=trace.path,
        format=trace.format,
        has_base_time=trace.has_base_time,
        strings=trace.strings,
        step_source=source,
        is_device_rank=is_device,
        main_thread=main,
        steps=steps,
        phases=phases(trace),
        stream_waits=stream_waits(trace, threads),
        process_groups=trace.process_groups,
        memory=memory_summary(trace),
        counts={"events": len(trace.events), "device_ops": len(tables["device_ops"]), "whole": int(whole)},
        sidecar=trace.sidecar,
        top=trace.top,
        health=(*trace.health, *notes),
        **tables,
    )


def _recurring(spans: Table, starting: Intervals) -> Table:
    """HOST_SPANS without the allocations of a rank that was starting up."""
    is_start = (spans["cause"] == CAUSE_CODE["allocator"]) & intervals.contains(starting, spans["start_ns"])
    return spans.take(~is_start)


def _launching_threads(ops: Table, main: int | None) -> Array:
    """Host tracks that launch device work, and the one that carries the step marks."""
    tracks = np.unique(ops["thread"][ops["thread"] != NULL]) if len(ops) else np.empty(0, np.int64)
    return np.union1d(tracks, [] if main is None else [main]).astype(np.int64)


def _device_tables(
    trace: RankTrace, steps: Table, main: int | None, are_marked: bool
) -> tuple[dict[str, Table], Table]:
    """The tables of a device rank, and its steps in device time. `steps`: of its host."""
    ops, rows = device_ops(trace)
    ops, comms, messages = device_comms(trace, ops, rows)
    comms, messages = describe_early(comms, messages, steps, early_comms(comms, ops))
    threads = _launching_threads(ops, main)
    spans = host_spans(trace, threads, ops)
    tables = {
        "device_ops": ops,
        "comms": comms,
        "messages": messages,
        "host_spans": spans,
        "stalls": host_stalls(trace, threads, ops, spans),
        "host_work": HOST_WORK.empty(),
    }
    steps = in_device_time(steps, ops, are_marked)
    tables["kernel_groups"] = kernel_groups(trace, ops, steps)
    if not len(steps):
        return {**tables, "exposed": EXPOSED.empty(), "gaps": GAPS.empty()}, steps
    marks = step_marks(steps)
    tables["exposed"] = exposed_comm(comms, busy(ops, Work.COMPUTE))
    runtime = trace.events["kind"] == Kind.RUNTIME
    waits = bool((runtime & is_wait_event(trace.strings)[trace.events["name"]]).any())
    comm = intervals.union(*comms.bounds)
    tables["gaps"] = find_gaps(ops, spans, marks, comm, streams_wait=waits)
    return tables, steps


def _host_tables(trace: RankTrace, steps: Table, main: int | None) -> dict[str, Table]:
    empty = {
        "device_ops": DEVICE_OPS.empty(),
        "kernel_groups": KERNEL_GROUPS.empty(),
        "stalls": STALLS.empty(),
    }
    if not len(steps) or main is None:
        spans = host_spans(trace, np.array([] if main is None else [main], np.int64), DEVICE_OPS.empty())
        return {
            **empty,
            "comms": COMMS.empty(),
            "messages": MESSAGES.empty(),
            "host_spans": spans,
            "host_work": HOST_WORK.empty(),
            "exposed": EXPOSED.empty(),
            "gaps": GAPS.empty(),
        }
    return {**empty, **cpu_facts(trace, steps, main)}


def _busy_before_note(steps: Table) -> list[HealthNote]:
    """Work that is not in the recording holds the device when it begins; `steps`: the window as one step."""
    held_ns = int((steps["start_ns"] - steps["mark_ns"]).sum())
    if not held_ns:
        return []
    issue = f"the device was busy for the first {format_us(held_ns / 1e3)} with work launched before the recording"
    return [HealthNote(issue, "that work is not in the file; times count from its end", "info")]


def _outside_note(ops: Table, steps: Table) -> list[HealthNote]:
    if not len(ops) or not len(steps):
        return []
    everything = intervals.union(*ops.bounds)
    inside = intervals.intersect(everything, intervals.union(*steps.bounds))
    total = intervals.length(everything)
    share = 1 - intervals.length(inside) / total if total else 0.0
    if share <= OUTSIDE_SHARE:
        return []
    return [
        HealthNote(
            f"{format_share(share)} of the device work was launched before the first or after the last step",
            "it is in no number of this report",
            "info",
        )
    ]

"""RankTrace to RankFacts: the map step. Pure; one rank at a time; safe to run in any process."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.comms import device_comms
from ddprof.analyzers.facts.completeness import (
    complete_steps,
    device_clock_note,
    knows_all_work,
    lost_calls_note,
    lost_marks_note,
    lost_pairs_note,
)
from ddprof.analyzers.facts.cpu.operators import outermost_operators
from ddprof.analyzers.facts.cpu.rank import cpu_facts
from ddprof.analyzers.facts.device import accelerator, device_ops
from ddprof.analyzers.facts.early import describe_early, early_comms
from ddprof.analyzers.facts.gaps import busy, exposed_comm, find_gaps, unexplained
from ddprof.analyzers.facts.gradients import anomaly_work, engine_passes, gradients, unused_searches
from ddprof.analyzers.facts.host import host_spans, phase_ranges, phases, stream_waits
from ddprof.analyzers.facts.kernels import kernel_groups
from ddprof.analyzers.facts.memory import device_memory
from ddprof.analyzers.facts.model import DEVICE_OPS, SCRIPT_OPERATORS, TABLES, RankFacts, Work
from ddprof.analyzers.facts.names import is_wait_event, rows_of
from ddprof.analyzers.facts.numbered import numbered_by_group
from ddprof.analyzers.facts.script.calls import call_waits, comm_hooks, meeting_calls, script_calls, unit_hooks
from ddprof.analyzers.facts.script.occupants import with_named_frames
from ddprof.analyzers.facts.script.phases import host_phases, script_operators, with_closures_beside
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.facts.stepping.device_time import in_device_time, met_ns
from ddprof.analyzers.facts.stepping.start_up import book_start_up, once_spans, start_up
from ddprof.analyzers.facts.stepping.steps import find_steps, step_marks
from ddprof.analyzers.facts.stops import host_bounds, host_silences, host_stalls
from ddprof.causes import CAUSE_CODE
from ddprof.intervals import Intervals
from ddprof.model import HealthNote, Kind, RankTrace
from ddprof.tables import NULL, Array, Table, among
from ddprof.units import format_share, format_us

OUTSIDE_SHARE = 0.05  # of the device's work; less of it outside every step is not worth a note


def rank_facts(trace: RankTrace) -> RankFacts:
    """All facts of one rank. Never raises on odd content: what cannot be judged becomes a health note."""
    trace, unnumbered = numbered_by_group(with_named_frames(with_closures_beside(trace)))
    steps, source, main, notes = find_steps(trace)
    device = accelerator(trace)
    is_device = device.kind != "cpu"  # also where its device left no events: its time is unknown then
    marked, (steps, whole, incomplete) = steps, complete_steps(trace, steps)
    torn = np.setdiff1d(marked["index"], steps["index"])
    # Without marks, or other steps to compare with, nothing says which steps a damaged file's missing events were of.
    is_damaged = any(note.severity == "error" for note in trace.health)
    whole = whole and not (is_damaged and (source == "inferred" or len(steps) == 1))
    tables = {name: schema.empty() for name, schema in TABLES.items() if name != "steps"}
    if is_device:
        made, steps = _device_tables(trace, steps, main, source != "inferred" or len(steps) > 1)
    else:
        made = _host_tables(trace, steps, main)
    tables |= made
    lost = lost_marks_note(trace, marked, steps, tables["device_ops"]) if source == "profiler_step" else []
    lost += lost_calls_note(trace, steps, tables["device_ops"]) + lost_pairs_note(trace, steps)
    lost += device_clock_note(trace, tables["device_ops"])
    notes, whole = [*notes, *unnumbered, *incomplete, *lost], whole and not lost
    counts = _counts(trace, tables["device_ops"], steps, whole)
    if (is_device and not (whole and counts["kernels"])) or trace.top.get("records") == "communication":
        tables["gaps"] = unexplained(tables["gaps"])
    threads = _launching_threads(tables["device_ops"], main)
    tables["once"] = once_spans(trace, steps, tables, threads)
    starting = start_up(tables["once"], steps)
    tables["gaps"] = book_start_up(tables["gaps"], starting)
    tables["host_spans"] = _recurring(tables["host_spans"], starting)
    notes += [] if trace.top.get("records") == "communication" else _outside_note(tables["device_ops"], steps)
    notes += _busy_before_note(steps, tables["device_ops"]) if source == "inferred" and len(steps) == 1 else []
    if not len(steps):
        notes.append(HealthNote(f"{trace.path}: no event with a duration", "nothing can be said of this rank", "error"))
    return RankFacts(
        identity=trace.identity,
        device=device,
        path=trace.path,
        format=trace.format,
        has_base_time=trace.has_base_time,
        strings=trace.strings,
        step_source=source,
        is_device_rank=is_device,
        main_thread=main,
        steps=steps,
        process_groups=trace.process_groups,
        memory=device_memory(trace, tables["device_ops"], steps),
        counts=counts,
        torn_steps=tuple(torn.tolist()),
        sidecar=trace.sidecar,
        top=trace.top,
        health=(*trace.health, *notes),
        **(tables | _of_host(trace, main, threads, steps)),
    )


def _of_host(trace: RankTrace, main: int | None, threads: Array, steps: Table) -> dict[str, Table]:
    """Tables that no device has a part in: phases, gradients, named calls, and Python by script line and by module."""
    marked = phases(trace)
    return {
        "phases": marked,
        "tracks": trace.tracks,
        "engine_passes": engine_passes(trace, marked),
        "anomaly_work": anomaly_work(trace, marked, threads),
        "gradients": gradients(trace, marked, threads),
        "stream_waits": stream_waits(trace, threads),
        "script_operators": _operators(trace, main, marked, steps),
        "script_spans": trace.script_spans.take(among(trace.script_spans["track"], threads)),
        "script_stacks": trace.script_stacks,
        "script_frames": trace.script_frames,
        "script_totals": trace.script_totals,
        "module_spans": trace.module_spans.take(among(trace.module_spans["track"], threads)),
        "module_stacks": trace.module_stacks,
        "meetings": meeting_calls(trace, threads),
        "script_calls": script_calls(trace, threads),
        "call_waits": call_waits(trace, threads),
        "comm_hooks": comm_hooks(trace),
        "unit_hooks": unit_hooks(trace),
        "unused_searches": unused_searches(trace),
    }


def _counts(trace: RankTrace, ops: Table, steps: Table, whole: bool) -> dict[str, int]:
    """Numbers of events of the file by kind, the mean number of operators in a step of the host, and 1 for `whole`.
    Other work counts as kernels where the program is known to launch none.
    """
    kind, marks = trace.events["kind"], intervals.union(steps["mark_ns"], steps["mark_end_ns"])
    inside = intervals.contains(marks, trace.events["ts_ns"][kind == Kind.CPU_OP])
    counts = {"events": len(kind), "device_ops": len(ops), "kernels": int((kind == Kind.KERNEL).sum())}
    if not counts["kernels"] and knows_all_work(trace):
        counts["kernels"] = len(ops)
    return {**counts, "whole": int(whole), "operators_per_step": int(inside.sum()) // max(1, len(steps))}


def _operators(trace: RankTrace, main: int | None, ranges: Table, steps: Table) -> Table:
    """SCRIPT_OPERATORS of the thread with the step marks."""
    spans = trace.script_spans.take(trace.script_spans["track"] == (NULL if main is None else main))
    if main is None or not len(steps) or not (len(spans) or len(trace.script_totals)):
        return SCRIPT_OPERATORS.empty()
    tree = call_tree(trace)
    marks = intervals.union(steps["mark_ns"], steps["mark_end_ns"])
    return script_operators(trace, main, spans, tree, host_phases(spans, tree, phase_ranges(ranges)), marks)


def _recurring(spans: Table, starting: Intervals) -> Table:
    """HOST_SPANS without the allocations and batches of start-up."""
    if not len(starting[0]):
        return spans
    at_start = np.isin(spans["cause"], [CAUSE_CODE["allocator"], CAUSE_CODE["dataloader"]])
    return spans.take(~(at_start & intervals.contains(starting, spans["start_ns"])))


def _launching_threads(ops: Table, main: int | None) -> Array:
    """Host tracks that launch device work, and the one that carries the step marks."""
    tracks = np.unique(ops["thread"][ops["thread"] != NULL]) if len(ops) else np.empty(0, np.int64)
    return np.union1d(tracks, [] if main is None else [main]).astype(np.int64)


def _device_tables(
    trace: RankTrace, steps: Table, main: int | None, are_marked: bool
) -> tuple[dict[str, Table], Table]:
    """Tables of a device rank, and its steps in device time. `steps`: of its host."""
    ops, rows = device_ops(trace)
    ops, comms, messages = device_comms(trace, ops, rows)
    comms, messages = describe_early(comms, messages, steps, early_comms(comms, ops))
    threads = _launching_threads(ops, main)
    spans = host_spans(trace, threads, ops, step_marks(steps))
    tables = {
        "device_ops": ops,
        "comms": comms,
        "messages": messages,
        "host_spans": spans,
        **_stops(trace, threads, ops, spans),
    }
    if not len(ops):
        tables["host_operators"] = outermost_operators(trace, threads, intervals.EMPTY, intervals.EMPTY)
    steps = in_device_time(steps, ops, are_marked)
    tables["kernel_groups"] = kernel_groups(trace, ops, steps)
    if not len(steps):
        return tables, steps
    tables["exposed"] = exposed_comm(comms, busy(ops, Work.COMPUTE))
    waits = len(rows_of(trace, Kind.RUNTIME, is_wait_event(trace.strings))) > 0
    comm = intervals.union(*comms.bounds)
    tables["gaps"] = find_gaps(ops, spans, step_marks(steps), comm, streams_wait=waits)
    return tables, steps


def _stops(trace: RankTrace, threads: Array, ops: Table, spans: Table) -> dict[str, Table]:
    bounds = host_bounds(trace, threads)  # twice the events: kept for no longer than here
    return {"stalls": host_stalls(trace, bounds, ops, spans), "silences": host_silences(trace, bounds, spans)}


def _host_tables(trace: RankTrace, steps: Table, main: int | None) -> dict[str, Table]:
    if len(steps) and main is not None:
        return cpu_facts(trace, steps, main)
    threads = np.array([] if main is None else [main], np.int64)
    return {"host_spans": host_spans(trace, threads, DEVICE_OPS.empty(), np.empty(0, np.int64))}


def _busy_before_note(steps: Table, ops: Table) -> list[HealthNote]:
    """Note on work that holds the device at first and is no part of a step; `steps`: the window as one step."""
    held_ns = int((steps["start_ns"] - steps["mark_ns"]).sum())
    if not held_ns:
        return []
    if met_ns(ops, steps.replace(start_ns=steps["mark_ns"])) == int(steps["start_ns"][0]):
        issue = f"the first communication took until {format_us(held_ns / 1e3)}, the same one later takes far less"
        why = "it waited for ranks whose profilers started later"
    else:
        issue = f"the device was busy for the first {format_us(held_ns / 1e3)} with work launched before the recording"
        why = "that work is not in the file"
    return [HealthNote(issue, f"{why}; the step starts after it", "info")]


def _outside_note(ops: Table, steps: Table) -> list[HealthNote]:
    if not len(ops) or not len(steps):
        return []
    everything = intervals.union(*ops.bounds)
    inside = intervals.intersect(everything, intervals.union(*steps.bounds))
    total = intervals.length(everything)
    share = 1 - intervals.length(inside) / total if total else 0.0
    if share <= OUTSIDE_SHARE:
        return []
    issue = f"{format_share(share)} of the device work was launched before the first or after the last step"
    return [HealthNote(issue, "it is excluded from this report", "info")]

"""Collectives of tensors called through torch.distributed functions by the script or a library.

DDP and autograd issue theirs from C++, past these functions.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.facts.model import CALL_WAITS, SCRIPT_CALLS, RankFacts
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.script.tree import call_tree, spans_of
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, among, concat

CALLS = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "broadcast", "gather"),
    *("reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter"),
    *("all_gather_single", "reduce_scatter_single"),
)
_RANGE = re.compile(rf"^ddprof::collective\.({'|'.join(CALLS)})$")
_WAIT = re.compile(r"^ddprof::collective\.wait$")
_FRAME = re.compile(rf"^torch/distributed/distributed_c10d\.py ({'|'.join(CALLS)})$")


def script_calls(trace: RankTrace, threads: Array) -> Table:
    """SCRIPT_CALLS of the training threads (`threads`: host tracks), by start; outermost calls only.

    From the ranges that capture leaves, else from the Python frames of a trace; samples would miss the short ones.
    """
    calls = _from_ranges(trace, threads)
    if not len(calls):
        calls = _from_frames(trace, threads)
    order = np.lexsort((-calls["end_ns"], calls["start_ns"]))
    calls = calls.take(order)
    reach = np.maximum.accumulate(calls["end_ns"]) if len(calls) else calls["end_ns"]
    outermost = np.ones(len(calls), bool)
    outermost[1:] = calls["start_ns"][1:] >= reach[:-1]
    return calls.take(outermost)


def called_by_script(facts: RankFacts, op: str, per_step: float) -> Array:
    """Mask of the script_calls in steps that call this operation themselves; all False where most of the `per_step`
    calls are DDP's buckets or others'."""
    calls = facts.script_calls
    is_call = calls["call"] == CALLS.index(op) if op in CALLS else np.zeros(len(calls), bool)
    is_call &= facts.is_issued_in_steps(calls["start_ns"])
    return is_call if is_call.sum() >= max(1.0, per_step * len(facts.steps) / 2) else np.zeros(len(calls), bool)


def call_waits(trace: RankTrace, threads: Array) -> Table:
    """CALL_WAITS of the training threads (`threads`: host tracks), by start; from the ranges that capture leaves."""
    rows, events = _ranges(trace, threads, _WAIT), trace.events
    rows = rows[np.argsort(events["ts_ns"][rows], kind="stable")]
    start = events["ts_ns"][rows]
    return CALL_WAITS.table({"start_ns": start, "end_ns": start + events["dur_ns"][rows]})


def _ranges(trace: RankTrace, threads: Array, pattern: re.Pattern[str]) -> Array:
    """Rows of the events that are ranges of these threads with such a name."""
    named, events = matches(pattern, trace.strings), trace.events
    is_one = named[events["name"]] & (events["kind"] == Kind.ANNOTATION)
    return np.flatnonzero(is_one & among(events["track"], threads))


def _from_ranges(trace: RankTrace, threads: Array) -> Table:
    rows, events = _ranges(trace, threads, _RANGE), trace.events
    code = np.array([_code(_RANGE, text) for text in trace.strings], np.int64)
    columns = {
        "start_ns": events["ts_ns"][rows],
        "end_ns": events["ts_ns"][rows] + events["dur_ns"][rows],
        "thread": events["track"][rows],
        "call": code[events["name"][rows]],
    }
    return SCRIPT_CALLS.table(columns)


def _from_frames(trace: RankTrace, threads: Array) -> Table:
    traced = trace.script_spans.take(
        (trace.script_spans["resolution_ns"] == 0) & among(trace.script_spans["track"], threads)
    )
    tables = [SCRIPT_CALLS.empty()]
    tree = call_tree(trace)
    code = np.array([_code(_FRAME, name) for name in tree.names], np.int64)
    for call in np.unique(code[code >= 0]).tolist():
        within = tree.within(code == call)
        for track in np.unique(traced["track"]).tolist():
            start, end = spans_of(traced.take(traced["track"] == track), within)
            columns = {
                "start_ns": start,
                "end_ns": end,
                "thread": np.full(len(start), track),
                "call": np.full(len(start), call),
            }
            tables.append(SCRIPT_CALLS.table(columns))
    return concat(SCRIPT_CALLS, tables)


def _code(pattern: re.Pattern[str], text: str) -> int:
    """Index in CALLS of a name; -1 for none."""
    match = pattern.match(text)
    return CALLS.index(match.group(1)) if match else -1

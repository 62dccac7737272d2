"""Collectives of tensors called through torch.distributed functions by the script or a library.

DDP and autograd issue theirs from C++, past these functions.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.events import on_threads, rows_of, times
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
    calls = calls.take(np.lexsort((-calls["end_ns"], calls["start_ns"])))
    return calls.take(intervals.outermost(*calls.bounds))


def called_by_script(facts: RankFacts, op: str, per_step: float) -> Array:
    """Mask of the script_calls in steps that call this operation themselves; all False where most of the `per_step`
    calls are DDP's buckets or others'."""
    calls = facts.script_calls
    is_call = calls["call"] == CALLS.index(op) if op in CALLS else np.zeros(len(calls), bool)
    is_call &= facts.is_issued_in_steps(calls["start_ns"])
    return is_call if is_call.sum() >= max(1.0, per_step * len(facts.steps) / 2) else np.zeros(len(calls), bool)


def call_waits(trace: RankTrace, threads: Array) -> Table:
    """CALL_WAITS of the training threads (`threads`: host tracks), by start; from the ranges that capture leaves."""
    start, end = times(trace.events, rows_of(trace, Kind.ANNOTATION, matches(_WAIT, trace.strings), threads))
    return CALL_WAITS.table({"start_ns": start, "end_ns": end})


def _from_ranges(trace: RankTrace, threads: Array) -> Table:
    rows = rows_of(trace, Kind.ANNOTATION, matches(_RANGE, trace.strings), threads)
    code = np.array([_code(_RANGE, text) for text in trace.strings], np.int64)
    columns = on_threads(trace.events, rows)
    columns["call"] = code[columns.pop("name")]
    return SCRIPT_CALLS.table(columns)


def _from_frames(trace: RankTrace, threads: Array) -> Table:
    spans = trace.script_spans
    traced = spans.take((spans["resolution_ns"] == 0) & among(spans["track"], threads))
    tables = [SCRIPT_CALLS.empty()]
    tree = call_tree(trace)
    code = np.array([_code(_FRAME, name) for name in tree.names], np.int64)
    for call in np.unique(code[code >= 0]).tolist():
        within = tree.within(code == call)
        for track in np.unique(traced["track"]).tolist():
            start, end = spans_of(traced.take(traced["track"] == track), within)
            tables.append(SCRIPT_CALLS.table({"start_ns": start, "end_ns": end, "thread": track, "call": call}))
    return concat(SCRIPT_CALLS, tables)


def _code(pattern: re.Pattern[str], text: str) -> int:
    """Index in CALLS of a name; -1 for none."""
    match = pattern.match(text)
    return CALLS.index(match.group(1)) if match else -1

"""Calls of the script in which ranks meet: collectives, barriers, and communication hooks.

DDP and autograd issue theirs from C++, past these functions.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NAMED_SPANS, SCRIPT_CALLS, SPANS, RankFacts
from ddprof.analyzers.facts.names import OP_CODE, matches, rows_of, spans_table, times
from ddprof.analyzers.facts.script.tree import call_tree, spans_of
from ddprof.intervals import union
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
    """SPANS of the training threads (`threads`: host tracks), by start: Python waits for a communication that a call
    began, by the ranges that capture leaves."""
    return spans_table(trace, rows_of(trace, Kind.ANNOTATION, matches(_WAIT, trace.strings), threads))


def _from_ranges(trace: RankTrace, threads: Array) -> Table:
    rows = rows_of(trace, Kind.ANNOTATION, matches(_RANGE, trace.strings), threads)
    code = np.array([_code(_RANGE, text) for text in trace.strings], np.int64)
    start, end = times(trace.events, rows)
    return SCRIPT_CALLS.table({"start_ns": start, "end_ns": end, "call": code[trace.events["name"][rows]]})


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
            tables.append(SCRIPT_CALLS.table({"start_ns": start, "end_ns": end, "call": call}))
    return concat(SCRIPT_CALLS, tables)


def _code(pattern: re.Pattern[str], text: str) -> int:
    """Index in CALLS of a name; -1 for none."""
    match = pattern.match(text)
    return CALLS.index(match.group(1)) if match else -1


# Python communication hooks of DistributedDataParallel, from the ranges that capture records around them, and FSDP's
# hooks around the passes of its units, from torch's own.

_HOOK_RANGE = re.compile(r"^ddprof::comm_hook (.+)$")
_UNIT = re.compile(r"^FSDP::(?:pre|post)_(?:forward|backward)")  # torch/distributed/fsdp/_fully_shard


def comm_hooks(trace: RankTrace) -> Table:
    """NAMED_SPANS of all threads, by start; with a device, autograd's thread calls them."""
    return spans_table(trace, rows_of(trace, Kind.ANNOTATION, matches(_HOOK_RANGE, trace.strings)), NAMED_SPANS)


def unit_hooks(trace: RankTrace) -> Table:
    """SPANS of all threads, by start; those within others are theirs."""
    start, end = union(*times(trace.events, rows_of(trace, Kind.ANNOTATION, matches(_UNIT, trace.strings))))
    return SPANS.table({"start_ns": start, "end_ns": end})


def hook_name(facts: RankFacts, name: int) -> str:
    """The function of a row of `comm_hooks`: "train.py:88 compress()"."""
    return _HOOK_RANGE.sub(r"\1", facts.strings[name])


# Blocking calls that synchronise ranks: barriers, and collectives of Python objects.
#
# Both block the host until every rank has come. An object is pickled and sent as bytes, after a collective for its
# size, and read back from the device (`torch.distributed.all_gather_object`, notes of its documentation).

MEETING_CALLS = (
    *("barrier", "monitored_barrier", "all_gather_object", "gather_object"),
    *("broadcast_object_list", "scatter_object_list"),
)
# The ranges that capture leaves, and torch's operator.
_MEETING = re.compile(rf"^(?:ddprof::collective\.|c10d::)({'|'.join(MEETING_CALLS)})$")


def meeting_calls(trace: RankTrace, threads: Array) -> Table:
    """NAMED_SPANS of the training threads (`threads`: host tracks), by start; outermost calls only."""
    named = matches(_MEETING, trace.strings)
    rows = np.union1d(*(rows_of(trace, kind, named, threads) for kind in (Kind.ANNOTATION, Kind.CPU_OP)))
    meetings = spans_table(trace, rows, NAMED_SPANS)
    return meetings.take(intervals.outermost(*meetings.bounds))


def called_name(event: str) -> str:
    """The torch.distributed function behind an event of `meetings`."""
    return _MEETING.sub(r"\1", event)


def is_meeting(facts: RankFacts) -> Array:
    """Mask of communications that are barriers or part of a collective of objects; shape (comms,)."""
    comms = facts.comms
    spans = intervals.union(*facts.meetings.bounds)
    return np.asarray((comms["op"] == OP_CODE["barrier"]) | intervals.contains(spans, comms["launch_ns"]))

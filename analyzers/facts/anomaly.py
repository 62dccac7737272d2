"""Work of autograd's anomaly mode: searches for NaN after the nodes of the backward pass, and Python stacks that
operators of the forward pass write.

The engine searches after a node has run: what the node calls itself, or a hook before it, is the script's. A stack is
written inside the operator that calls autograd, so that a view, which else takes a microsecond, takes as long as that.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.events import rows_of, times
from ddprof.analyzers.facts.gradient_tables import ANOMALY_WORK
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.facts.names import ENGINE, matches
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, concat

_NODE = re.compile(f"^{ENGINE}(?!torch::autograd::AccumulateGrad$)")
# torch/csrc/autograd/engine.cpp, call_function: isnan, _is_any_true, item; in older versions isnan, any, is_nonzero.
_SEARCH = re.compile(r"^aten::isnan$")
_CHECK = re.compile(r"^aten::(?:isnan|_is_any_true|any|is_nonzero|item)$")
_OPERATOR = re.compile(r"^aten::")
_VIEW = re.compile(r"^aten::(?:view|_unsafe_view|t|transpose|permute|(?:un)?squeeze|select|slice|expand|alias|detach)$")
MOST = 0.5  # of the nodes: anomaly mode checks all of them, a script's own hooks a few
FEWEST_VIEWS = 3  # of fewer the time is chance
LEAST_NS = 20_000  # a stack of a few frames takes some 50 us, a view at most 8 (torch 2.13, with the profiler)


def anomaly_work(trace: RankTrace, phases: Table, threads: Array) -> Table:
    """ANOMALY_WORK, by start; empty where few nodes are checked. `phases`: the marked ones; `threads`: host tracks that
    launch.
    """
    searches = matches(_SEARCH, trace.strings)
    if not searches.any():
        return ANOMALY_WORK.empty()
    nodes = rows_of(trace, Kind.CPU_OP, matches(_NODE, trace.strings))
    checks = _checks(trace, nodes, searches)
    if len(checks) <= MOST * len(nodes):
        return ANOMALY_WORK.empty()
    passes = times(trace.events, nodes)
    updates = phases.bounds_of(phases["phase"] == Phase.OPTIMIZER)
    writes = _writes(trace, intervals.merge(passes), updates, len(nodes), threads)
    return concat(ANOMALY_WORK, [checks, writes]).ordered()


def _checks(trace: RankTrace, nodes: Array, searches: Array) -> Table:
    """ANOMALY_WORK of the checks: one row for each node that has some."""
    names = {trace.strings[name].removeprefix(ENGINE) for name in np.unique(trace.events["name"][nodes]).tolist()}
    ran = rows_of(trace, Kind.CPU_OP, np.array([text in names for text in trace.strings], bool))
    checks, track = rows_of(trace, Kind.CPU_OP, matches(_CHECK, trace.strings)), trace.events["track"]
    bounds = [np.empty((2, 0), np.int64)]
    for one in np.unique(track[nodes]).tolist():
        here, ran_here, of_them = (rows[track[rows] == one] for rows in (nodes, ran, checks))
        bounds += [_checked(trace, here, ran_here, of_them, searches)]
    start, end = np.concatenate(bounds, axis=1)
    return ANOMALY_WORK.table({"start_ns": start, "end_ns": end, "share": 1.0, "is_check": True})


def _checked(trace: RankTrace, nodes: Array, ran: Array, checks: Array, searches: Array) -> Array:
    """Start and end (ns) of the checks in each node of a thread that has some, shape (2, checked nodes). `ran`: rows of
    the nodes' own functions; `searches`: mask of the trace's strings that name a search for NaN.
    """
    events = trace.events
    start_ns, end_ns = events["ts_ns"], events["ts_ns"] + events["dur_ns"]
    function = np.searchsorted(start_ns[ran], start_ns[nodes])  # of each node: the first that begins in it
    ended_ns = np.append(end_ns[ran], np.iinfo(np.int64).max)[function]
    node = np.searchsorted(start_ns[nodes], start_ns[checks], side="right") - 1  # nodes may hold a backward pass
    is_after = (node >= 0) & (end_ns[checks] <= end_ns[nodes][node]) & (start_ns[checks] >= ended_ns[node])
    checks, node = checks[is_after], node[is_after]
    first, last = np.full(len(nodes), np.iinfo(np.int64).max), np.zeros(len(nodes), np.int64)
    is_search = searches[events["name"][checks]]
    np.minimum.at(first, node[is_search], start_ns[checks[is_search]])
    np.maximum.at(last, node, end_ns[checks])
    return np.array([first, last])[:, last > first]


def _writes(trace: RankTrace, passes: Intervals, updates: Intervals, nodes: int, threads: Array) -> Table:
    """ANOMALY_WORK of the stacks: each of the `nodes` was made by an operator outside the backward `passes` and the
    `updates` that is as long as a stack takes at least, and calls no other such operator.
    """
    events = trace.events
    rows = rows_of(trace, Kind.CPU_OP, matches(_OPERATOR, trace.strings), threads)
    start, dur = events["ts_ns"][rows], events["dur_ns"][rows]
    is_view, inside = matches(_VIEW, trace.strings)[events["name"][rows]], intervals.contains(passes, start)
    outside = ~inside & ~intervals.contains(intervals.union(*updates), start)
    writes = dur >= LEAST_NS
    usual_ns, writing_ns = dur[is_view & inside & ~writes], dur[is_view & outside & writes]
    if len(writing_ns) < FEWEST_VIEWS:
        return ANOMALY_WORK.empty()
    each_ns = float(np.minimum(writing_ns, 2 * np.median(writing_ns)).mean())  # no long stop counts
    each_ns -= float(np.median(usual_ns)) if len(usual_ns) else 0.0
    is_long = outside & (dur >= each_ns / 2)
    order = np.argsort(events["track"][rows[is_long]], kind="stable")
    start, dur, track = start[is_long][order], dur[is_long][order], events["track"][rows[is_long]][order]
    calls = np.append((start[1:] < start[:-1] + dur[:-1]) & (track[1:] == track[:-1]), False)
    start, dur = start[~calls], dur[~calls]
    share = np.minimum(1.0, min(1.0, nodes / max(1, len(start))) * each_ns / dur)
    return ANOMALY_WORK.table({"start_ns": start, "end_ns": start + dur, "share": share, "is_check": False})

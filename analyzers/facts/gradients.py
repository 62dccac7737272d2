"""Runs of the autograd engine, the fate of the gradients, DDP's searches for unused parameters,
and the work of anomaly mode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import ANOMALY_WORK, GRADIENTS, SPANS, UNUSED_SEARCHES, GradientAct, Phase
from ddprof.analyzers.facts.names import ENGINE, matches, rows_of, times
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, among, concat

# torch/csrc/distributed/c10d/reducer.cpp; before torch 1.10 "torch::distributed::reducer::search_unused_parameters".
_SEARCH = re.compile(r"reducer::search_unused_parameters$")
_SINK = re.compile(r"^_DDPSink$")  # an autograd function of DistributedDataParallel, after the search
_GRADIENT = re.compile(rf"^(?:{ENGINE})?torch::autograd::AccumulateGrad$")
_NODE = re.compile(f"^{ENGINE}")
# torch/csrc/autograd/functions/accumulate_grad.h: in place, or into a new tensor where the graph of it is wanted.
_ADDS = re.compile(r"^aten::add_?$")
_ZEROES = re.compile(r"^Optimizer\.zero_grad#")  # torch's own range
# In place, as scaling, clipping and zeroing by hand are; and norms, which clipping takes. What makes a batch may be so
# named, too: then it is not known that gradients were left alone.
_TOUCHES = re.compile(r"^aten::(?:(?:\w+[^_]_)|_foreach_\w+|(?:linalg_(?:vector_)?)?norm)$")


def is_gradient(strings: Sequence[str]) -> Array:
    """Mask of the strings that name the operator that keeps a parameter's gradient; shape (strings,)."""
    return matches(_GRADIENT, strings)


def unused_searches(trace: RankTrace) -> Table:
    """UNUSED_SEARCHES of all threads, by start, with the Python and the identity node that follow each and that a model
    without the search does not have.
    """
    named = matches(_SEARCH, trace.strings)
    if not named.any():
        return UNUSED_SEARCHES.empty()
    rows = rows_of(trace, Kind.CPU_OP, named)
    gradient = is_gradient(trace.strings)
    by_engine = gradient & np.array([text.startswith(ENGINE) for text in trace.strings], bool)
    # The engine's range and the node's own are two events of one gradient.
    reached = trace.events["ts_ns"][rows_of(trace, Kind.CPU_OP, by_engine if by_engine.any() else gradient)]
    start = trace.events["ts_ns"][rows]
    end = _passed_through(trace, rows, rows_of(trace, Kind.CPU_OP, matches(_SINK, trace.strings)))
    following = np.searchsorted(start, reached, side="right") - 1
    counts = np.bincount(following[following >= 0], minlength=len(rows))
    return UNUSED_SEARCHES.table({"start_ns": start, "end_ns": end, "gradients": counts})


def _passed_through(trace: RankTrace, searches: Array, sinks: Array) -> Array:
    """End of the identity node after each search, run next by the same thread; else the end of the search."""
    events = trace.events
    _, end = times(events, searches)
    for track in np.unique(events["track"][searches]).tolist():
        here = events["track"][searches] == track
        operators = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["track"] == track))
        following = np.searchsorted(events["ts_ns"][operators], end[here])
        at = np.append(operators, -1)[following]  # the next operator, whatever it is
        end[here] = np.where(np.isin(at, sinks), times(events, at)[1], end[here])
    return end


def engine_passes(trace: RankTrace, phases: Table) -> Table:
    """SPANS, by start: first to last node of the engine between forward passes or optimizers. `phases`: the
    marked ones; none where backward passes are marked.
    """
    rows = rows_of(trace, Kind.CPU_OP, matches(_NODE, trace.strings))
    if not len(rows) or (phases["phase"] == Phase.BACKWARD).any():
        return SPANS.empty()
    edges = np.unique(phases["start_ns"])
    start, end = times(trace.events, rows)
    passes, pass_of_row = np.unique(np.searchsorted(edges, start, side="right"), return_inverse=True)
    first, last = np.full(len(passes), np.iinfo(np.int64).max), np.full(len(passes), np.iinfo(np.int64).min)
    np.minimum.at(first, pass_of_row, start)
    np.maximum.at(last, pass_of_row, end)
    following = np.append(edges, np.iinfo(np.int64).max)[passes]
    return SPANS.table({"start_ns": first, "end_ns": np.minimum(last, following)})


def gradients(trace: RankTrace, phases: Table, threads: Array) -> Table:
    """GRADIENTS of a rank, by start. `phases`: the marked ones; `threads`: host tracks that launch."""
    rows_by_act = _accumulated(trace)
    rows_by_act[GradientAct.ZEROED] = rows_of(trace, Kind.ANNOTATION, matches(_ZEROES, trace.strings))
    rows_by_act[GradientAct.TOUCHED] = _outside_passes(trace, phases, threads)
    rows = np.concatenate([*rows_by_act.values()])
    act = np.repeat([*rows_by_act], [*map(len, rows_by_act.values())]).astype(np.uint8)
    order = np.argsort(trace.events["ts_ns"][rows], kind="stable")
    rows, act = rows[order], act[order]
    first = np.flatnonzero(np.append(True, act[1:] != act[:-1])[: len(act)])
    start, end = times(trace.events, rows)
    last = np.maximum.reduceat(end, first) if len(first) else end
    return GRADIENTS.table({"start_ns": start[first], "end_ns": last, "act": act[first]})


def _accumulated(trace: RankTrace) -> dict[GradientAct, Array]:
    """Rows of the nodes that deliver a gradient: those that add it to another, and those that store it."""
    events = trace.events
    nodes = rows_of(trace, Kind.CPU_OP, is_gradient(trace.strings))
    nodes = nodes[np.argsort(events["track"][nodes], kind="stable")]
    adds = rows_of(trace, Kind.CPU_OP, matches(_ADDS, trace.strings))
    is_adding = np.zeros(len(nodes), bool)
    for track in np.unique(events["track"][nodes]).tolist():
        on_track = np.flatnonzero(events["track"][nodes] == track)
        start, end = times(events, nodes[on_track])
        at = events["ts_ns"][adds[events["track"][adds] == track]]
        is_adding[on_track] = np.searchsorted(at, end) > np.searchsorted(at, start)
    return {GradientAct.ADDED: nodes[is_adding], GradientAct.STORED: nodes[~is_adding]}


def _outside_passes(trace: RankTrace, phases: Table, threads: Array) -> Array:
    """Rows of outermost operators that may touch gradients, outside the marked passes."""
    events = trace.events
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & among(events["track"], threads))
    may_touch = rows[matches(_TOUCHES, trace.strings)[events["name"][rows]]]
    may_touch = may_touch[~intervals.contains(intervals.union(*phases.bounds), events["ts_ns"][may_touch])]
    outermost = [may_touch[:0]]
    for one in np.unique(events["track"][may_touch]).tolist():
        on_thread = rows[events["track"][rows] == one]
        reach = np.maximum.accumulate(times(events, on_thread)[1])
        touching = may_touch[events["track"][may_touch] == one]
        before = np.append(np.iinfo(np.int64).min, reach)[np.searchsorted(on_thread, touching)]
        outermost.append(touching[events["ts_ns"][touching] >= before])
    return np.concatenate(outermost)


# Work of autograd's anomaly mode: searches for NaN after the nodes of the backward pass, and Python stacks that
# operators of the forward pass write.
#
# The engine searches after a node has run: what the node calls itself, or a hook before it, is the script's. A stack is
# written inside the operator that calls autograd, so that a view, which else takes a microsecond, takes as long as
# that.

_SEARCHED_NODE = re.compile(f"^{ENGINE}(?!torch::autograd::AccumulateGrad$)")
# torch/csrc/autograd/engine.cpp, call_function: isnan, _is_any_true, item; in older versions isnan, any, is_nonzero.
_NAN_SEARCH = re.compile(r"^aten::isnan$")
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
    searches = matches(_NAN_SEARCH, trace.strings)
    if not searches.any():
        return ANOMALY_WORK.empty()
    nodes = rows_of(trace, Kind.CPU_OP, matches(_SEARCHED_NODE, trace.strings))
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

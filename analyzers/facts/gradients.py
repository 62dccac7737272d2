"""Runs of the autograd engine, the fate of the gradients, and DDP's searches for unused parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.events import rows_of, times
from ddprof.analyzers.facts.gradient_tables import ENGINE_PASSES, GRADIENTS, UNUSED_SEARCHES, GradientAct
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.facts.names import ENGINE, matches
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, among

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
    """ENGINE_PASSES, by start: first to last node of the engine between forward passes or optimizers. `phases`: the
    marked ones; none where backward passes are marked.
    """
    rows = rows_of(trace, Kind.CPU_OP, matches(_NODE, trace.strings))
    if not len(rows) or (phases["phase"] == Phase.BACKWARD).any():
        return ENGINE_PASSES.empty()
    edges = np.unique(phases["start_ns"])
    start, end = times(trace.events, rows)
    passes, which = np.unique(np.searchsorted(edges, start, side="right"), return_inverse=True)
    first, last = np.full(len(passes), np.iinfo(np.int64).max), np.full(len(passes), np.iinfo(np.int64).min)
    np.minimum.at(first, which, start)
    np.maximum.at(last, which, end)
    following = np.append(edges, np.iinfo(np.int64).max)[passes]
    return ENGINE_PASSES.table({"start_ns": first, "end_ns": np.minimum(last, following)})


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

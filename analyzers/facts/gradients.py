"""When autograd's engine runs, and when DistributedDataParallel looks for parameters that it will not reach."""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.facts.model import ENGINE_PASSES, UNUSED_SEARCHES, Phase
from ddprof.analyzers.facts.names import matches
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table

# torch/csrc/distributed/c10d/reducer.cpp; before torch 1.10 "torch::distributed::reducer::search_unused_parameters".
_SEARCH = re.compile(r"reducer::search_unused_parameters$")
_SINK = re.compile(r"^_DDPSink$")  # an autograd function of DistributedDataParallel, after the search
_GRADIENT = re.compile(r"^(?:autograd::engine::evaluate_function: )?torch::autograd::AccumulateGrad$")
_ENGINE = "autograd::engine::evaluate_function: "
_NODE = re.compile(f"^{_ENGINE}")


def unused_searches(trace: RankTrace) -> Table:
    """UNUSED_SEARCHES of all threads, by start: with the Python and the node that the outputs are passed through after
    each, which a model without it does not have."""
    named = matches(_SEARCH, trace.strings)
    if not named.any():
        return UNUSED_SEARCHES.empty()
    events = trace.events
    operators = events["kind"] == Kind.CPU_OP
    rows = np.flatnonzero(operators & named[events["name"]])
    rows = rows[np.argsort(events["ts_ns"][rows], kind="stable")]
    gradient = matches(_GRADIENT, trace.strings)
    by_engine = gradient & np.array([text.startswith(_ENGINE) for text in trace.strings], bool)
    # The engine's range and the node's own are two events of one gradient.
    reached = events["ts_ns"][operators & (by_engine if by_engine.any() else gradient)[events["name"]]]
    start = events["ts_ns"][rows]
    end = _passed_through(trace, rows, np.flatnonzero(operators & matches(_SINK, trace.strings)[events["name"]]))
    following = np.searchsorted(start, reached, side="right") - 1
    counts = np.bincount(following[following >= 0], minlength=len(rows))
    return UNUSED_SEARCHES.table({"start_ns": start, "end_ns": end, "gradients": counts})


def _passed_through(trace: RankTrace, searches: Array, sinks: Array) -> Array:
    """When the outputs have passed the node after each search, of those that the same thread runs next; else when the
    search ends."""
    events = trace.events
    end = events["ts_ns"][searches] + events["dur_ns"][searches]
    for track in np.unique(events["track"][searches]).tolist():
        here = events["track"][searches] == track
        mine = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (events["track"] == track))
        mine = mine[np.argsort(events["ts_ns"][mine], kind="stable")]
        following = np.searchsorted(events["ts_ns"][mine], end[here])
        at = np.append(mine, -1)[following]  # the next operator, whatever it is
        is_sink = np.isin(at, sinks)
        end[here] = np.where(is_sink, events["ts_ns"][at] + events["dur_ns"][at], end[here])
    return end


def engine_passes(trace: RankTrace, phases: Table) -> Table:
    """ENGINE_PASSES, by start: from the first node of the engine after a forward pass or an optimizer to the last one
    before the next. `phases`: those that are marked; none where backward passes are.
    """
    events = trace.events
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & matches(_NODE, trace.strings)[events["name"]])
    if not len(rows) or (phases["phase"] == Phase.BACKWARD).any():
        return ENGINE_PASSES.empty()
    edges = np.unique(phases["start_ns"])
    start = events["ts_ns"][rows]
    found, which = np.unique(np.searchsorted(edges, start, side="right"), return_inverse=True)
    first, last = np.full(len(found), np.iinfo(np.int64).max), np.full(len(found), np.iinfo(np.int64).min)
    np.minimum.at(first, which, start)
    np.maximum.at(last, which, start + events["dur_ns"][rows])
    following = np.append(edges, np.iinfo(np.int64).max)[found]
    return ENGINE_PASSES.table({"start_ns": first, "end_ns": np.minimum(last, following)})

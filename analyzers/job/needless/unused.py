"""`find_unused_parameters=True` where every parameter gets a gradient in every pass.

DistributedDataParallel then walks the graph after each forward pass, reduces a map of the parameters that were used
(one 32-bit integer each) after each backward pass, and keeps its buckets in the order of construction
(torch/csrc/distributed/c10d/reducer.cpp: search_unused_parameters, all_reduce_local_used_map, should_rebuild_buckets).
The map's bytes say how many parameters there are, the gradients of the pass how many were used.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.facts.work import issued_ns
from ddprof.intervals import Intervals
from ddprof.tables import Array

_BYTES = 4  # of the map, per parameter


def maps_without_need(facts: RankFacts) -> tuple[Array, int]:
    """Which communications of a rank reduce the map of used parameters, and how many parameters there are, where all
    of them are used in every pass of the recording; no communication, and 0, where one is not, or nothing is searched.

    The first element is bool of shape (comms,).
    """
    comms, searches = facts.comms, facts.unused_searches
    none = np.zeros(len(comms), bool)
    if not len(searches) or not len(comms):
        return none, 0
    at_ns = issued_ns(comms)
    search = np.searchsorted(searches["start_ns"], at_ns, side="right") - 1
    gradients = np.where(search >= 0, searches["gradients"][np.maximum(search, 0)], 0)
    whole = (comms["op"] == OP_CODE["all_reduce"]) & (gradients > 0)
    rows = np.flatnonzero(whole & (comms["in_bytes"] == _BYTES * gradients))
    rows = rows[np.argsort(at_ns[rows], kind="stable")]
    # A bucket may have as many bytes: the map is reduced after all buckets of its pass.
    last = dict(zip(search[rows].tolist(), rows.tolist(), strict=True))
    searching = np.unique(search[whole])  # the recording may end between a search and its backward pass
    if not len(searching) or set(last) != set(searching.tolist()):
        return none, 0
    none[list(last.values())] = True
    return none, int(np.median(gradients[none]))


def search_time(facts: RankFacts) -> Intervals:
    """When the host looks for unused parameters."""
    return intervals.union(*facts.unused_searches.bounds)

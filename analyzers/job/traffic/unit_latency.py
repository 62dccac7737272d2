"""Latency of gathering or reducing sharded parameters, independent of size."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof.analyzers.job.traffic.cost import fit_cost
from ddprof.analyzers.job.traffic.statistics import CommStats
from ddprof.analyzers.job.traffic.units import ROLE

# About the bus bandwidth of large messages inside a node of NVLink (NCCL's tests on A100 and H100: 200 to 450 GB/s).
FAST_BYTES_PER_NS = 200.0
SHORTEST = 0.05  # quantile: a call that ended early by chance is no bound


class UnitLatency(Struct, frozen=True):
    """Latency of one call. `is_measured`: from messages of several sizes; else an upper bound: the excess over a fast
    link for the only size or, without sizes, the shortest call.
    """

    ns: float
    share: float  # of the typical call
    is_measured: bool


def unit_latency(comm: CommStats) -> UnitLatency | None:
    """The latency of calls that gather and reduce units; None without any."""
    traffic = [t for t in comm.traffic if t.role == ROLE and t.op in ("all_gather", "reduce_scatter")]
    if not traffic:
        return None
    sizes = np.concatenate([t.sizes_bytes for t in traffic]).astype(float)
    times_ns = np.concatenate([t.times_us for t in traffic]) * 1e3
    if not (times_ns > 0).any():
        return None
    usable = (sizes > 0) & (times_ns > 0)
    if not usable.any():
        some = times_ns[times_ns > 0]
        ns, usual_ns = float(np.quantile(some, SHORTEST)), float(np.median(some))
        return UnitLatency(ns, ns / usual_ns, False)
    usual_ns = float(np.median(times_ns[usable]))
    model = fit_cost(sizes, times_ns)
    if model is not None:
        ns = min(model.alpha_ns, usual_ns)
        return UnitLatency(ns, ns / usual_ns, True)
    ns = max(0.0, float(np.median(times_ns[usable] - sizes[usable] / FAST_BYTES_PER_NS)))
    return UnitLatency(ns, ns / usual_ns, False)

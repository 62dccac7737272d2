"""Small collectives gathered into buckets: the latency once, the volume at the cost of the trace's own points."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.cost import CostModel, fit_cost
from ddprof.analyzers.replay.changes.communication.transfers import has_role, sizes_bytes
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.findings import Change
from ddprof.tables import NULL, Array

VOLUME_SHARE = 0.1
# Calls that share a bucket where the trace holds no sizes: of 1 MiB each if DDP's default takes them, but never so many
# that nothing is left to overlap.
MOST_PER_BUCKET, FEWEST_BUCKETS = 25, 3


def merge_buckets(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Consecutive collectives of the role gathered into buckets of `values[0]` bytes."""
    roles = {rank.position: has_role(rank, measures, change.target) for rank in graph.ranks}
    transfers = _merged_transfers(graph, roles, change.values[0])
    host = {}
    for rank in graph.ranks:
        comms = rank.facts.comms
        merged = roles[rank.position] & (transfers[rank.position] == 0) & (rank.ops.transfer_ns > 0)
        rows = rank.ops.comm[merged]
        rows = rows[comms["launch_end_ns"][rows] != NULL]
        # A call that is no longer made takes no host time either.
        host[rank.position] = (((comms["launch_ns"][rows], comms["launch_end_ns"][rows]), 0.0),)
    return Scenario(transfer_ns=transfers, host_scale=host)


def _merged_transfers(graph: Graph, chosen: Mapping[int, Array], cap_bytes: float) -> dict[int, Array]:
    """New transfer (ns) per operation when consecutive chosen ones of a step share buckets of `cap_bytes`.

    The last of a bucket carries it all: the latency once, and the volume at the cost of the trace's own points.
    """
    result = {}
    for rank in graph.ranks:
        transfer = rank.ops.transfer_ns.astype(np.float64).copy()
        rows = np.flatnonzero(chosen[rank.position])
        rows = rows[np.argsort(rank.ops.issued_ns[rows], kind="stable")]
        sizes = sizes_bytes(rank, rows)
        if not sizes.any():
            calls = len(rows) / max(1, len(rank.marks_ns))
            sizes[:] = cap_bytes / min(MOST_PER_BUCKET, max(2, calls // FEWEST_BUCKETS))
        step = np.searchsorted(rank.marks_ns, rank.ops.issued_ns[rows], side="right")
        model = fit_cost(sizes, transfer[rows])
        for bucket in _buckets(sizes, step, cap_bytes):
            members = rows[bucket]
            before = transfer[members].sum()
            transfer[members] = 0.0
            transfer[members[-1]] = min(before, _bucket_ns(model, sizes[bucket], before))
        result[rank.position] = np.round(transfer).astype(np.int64)
    return result


def _bucket_ns(model: CostModel | None, sizes: Array, before_ns: float) -> float:
    """Cost of one bucket in place of its members. Without a model: one member's cost and a tenth of the others'.

    A kind of call with one size only is judged latency-bound for being far below any link's rate, so little of it is
    volume.
    """
    if model is not None:
        return model.time_ns(float(sizes.sum()))
    mean = before_ns / len(sizes)
    return mean * (1 + VOLUME_SHARE * (len(sizes) - 1))


def _buckets(sizes: Array, step: Array, cap_bytes: float) -> list[Array]:
    buckets: list[list[int]] = []
    filled = 0.0
    for i, size in enumerate(sizes.tolist()):
        fresh = not buckets or step[i] != step[buckets[-1][-1]] or filled + size > cap_bytes
        if fresh:
            buckets.append([i])
            filled = size
        else:
            buckets[-1].append(i)
            filled += size
    return [np.array(b) for b in buckets]

"""Transfers of the recorded collectives at another speed or begun earlier, and which operations a role has."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.script.calls import is_meeting
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.stage_links import message_ends
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.analyzers.replay.changes.communication.ddp_buckets import backward_compute_ns
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario, scaled
from ddprof.findings import Alters, Change, Fix
from ddprof.tables import NULL, Array

FEWEST_TO_OVERLAP = 4  # buckets per step: with fewer there is next to nothing to overlap
ENOUGH_COMPUTE = 0.3  # of the transfer, in forward and backward compute: a good part of it could be hidden
BY_HOOKS = Fix(
    setting="when gradients are reduced",
    suggested="during the backward pass, by DDP's hooks; no manual reduction after it",
    patch="model = DistributedDataParallel(model)  # and no all_reduce of gradients after loss.backward()",
    alters=Alters.MEAN,
    why="replayed with buckets of other sizes, the step is not clearly shorter",
    source="PyTorch DDP (VLDB'20); ddprof plan buckets",
)


def scale_transfer(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Transfers of groups of the role (all, if none is named) take value times as long."""
    transfer = {}
    factor = change.values[0] if change.values else 0.0
    for rank in graph.ranks:
        is_scaled = rank.ops.is_comm & has_role(rank, measures, change.target)
        transfer[rank.position] = scaled(rank.ops.transfer_ns, is_scaled, factor)
    return Scenario(transfer_ns=transfer)


def speed_groups(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Transfers of the groups (rows of JobFacts.groups, `values[1:]`) take `values[0]` times as long."""
    wanted = np.isin(measures.job.instances["group"], [int(group) for group in change.values[1:]])
    return _instances_scaled(wanted, change.values[0], graph, measures)


def speed_links(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Messages between the two ranks of each pair (`ranks`, two by two) take `values[0]` times as long to move."""
    job = measures.job
    low, high = message_ends(job)
    wanted = np.zeros(len(low), bool)
    for pair in zip(change.ranks[::2], change.ranks[1::2], strict=True):
        a, b = sorted(job.rank_ids.index(rank) for rank in pair)
        wanted |= (low == a) & (high == b)
    return _instances_scaled(wanted, change.values[0], graph, measures)


def _instances_scaled(wanted: Array, factor: float, graph: Graph, measures: Measures) -> Scenario:
    """Transfers of the wanted instances (mask) take `factor` times as long."""
    members, transfer = measures.job.members, {}
    for rank in graph.ranks:
        of_rank = members_of(members, rank.position)
        comms = members["comm"][of_rank[wanted[members["instance"][of_rank]]]]
        transfer[rank.position] = scaled(rank.ops.transfer_ns, np.isin(rank.ops.comm, comms) & rank.ops.is_comm, factor)
    return Scenario(transfer_ns=transfer)


def overlap(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Collectives of the role start with the first gradient: what compute can hide is hidden.

    Of the transfers of a step that part is left which exceeds the backward pass, and at least the last bucket, which
    nothing can hide: `values[0]` bytes of the volume, or, where no sizes were recorded, one of FEWEST_TO_OVERLAP
    buckets.
    """
    transfers = {}
    for rank in graph.ranks:
        transfer = rank.ops.transfer_ns.astype(np.float64)
        rows = np.flatnonzero(has_role(rank, measures, change.target))
        step = np.searchsorted(rank.marks_ns, rank.ops.issued_ns[rows], side="right")
        sizes, backward_ns = sizes_bytes(rank, rows), backward_compute_ns(rank)
        for s in np.unique(step):
            members = rows[step == s]
            total, volume = float(transfer[members].sum()), float(sizes[step == s].sum())
            tail = total * (min(1.0, change.values[0] / volume) if volume else 1 / FEWEST_TO_OVERLAP)
            left = max(tail, total - backward_ns[min(int(s), len(backward_ns) - 1)])
            transfer[members] *= left / total if total else 1.0
        transfers[rank.position] = np.round(transfer).astype(np.int64)
    return Scenario(transfer_ns=transfers)


def has_role(rank: RankGraph, measures: Measures, role: str) -> Array:
    """Operations whose process group serves the role, but for barriers and those of Python objects, bool per operation;
    for the role "" every communication."""
    if not role:
        return np.asarray(rank.ops.is_comm)
    job = measures.job
    rows = members_of(job.members, rank.position)
    comm = job.members["comm"][rows]
    serves = job.groups["role"][job.instances["group"][job.members["instance"][rows]]] == role
    flag = np.zeros(len(rank.facts.comms) + 1, bool)  # the last for no communication
    flag[comm[serves]] = True
    flag[:-1] &= ~is_meeting(rank.facts)
    return flag[rank.ops.comm]


def sizes_bytes(rank: RankGraph, rows: Array) -> Array:
    """Message size of each of the operations `rows`; 0 where it was not recorded."""
    sizes = rank.facts.comms["size_bytes"][rank.ops.comm[rows]].astype(float)
    return np.where(sizes == NULL, 0.0, sizes)

"""Transfers of the recorded collectives at another speed, and which operations a role has."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.script.barriers import is_meeting
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.stage_links import message_ends
from ddprof.analyzers.job.waiting.members import members_of
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario
from ddprof.findings import Change
from ddprof.tables import NULL, Array


def scale_transfer(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Transfers of groups of the role (all, if none is named) take value times as long."""
    transfer = {}
    factor = change.values[0] if change.values else 0.0
    for rank in graph.ranks:
        is_scaled = rank.ops.is_comm & has_role(rank, measures, change.target)
        transfer[rank.position] = np.where(
            is_scaled, np.round(rank.ops.transfer_ns * factor), rank.ops.transfer_ns
        ).astype(np.int64)
    return Scenario(transfer_ns=transfer)


def speed_groups(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Transfers of the groups (rows of JobFacts.groups, `values[1:]`) take `values[0]` times as long."""
    job, wanted = measures.job, [int(g) for g in change.values[1:]]
    transfer = {}
    for rank in graph.ranks:
        of_rank = members_of(job.members, rank.position)
        chosen = np.isin(job.instances["group"][job.members["instance"][of_rank]], wanted)
        rows = np.isin(rank.ops.comm, job.members["comm"][of_rank][chosen]) & rank.ops.is_comm
        scaled = np.round(rank.ops.transfer_ns * change.values[0])
        transfer[rank.position] = np.where(rows, scaled, rank.ops.transfer_ns).astype(np.int64)
    return Scenario(transfer_ns=transfer)


def speed_links(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Messages between the two ranks of each pair (`ranks`, two by two) take `values[0]` times as long to move."""
    job = measures.job
    low, high = message_ends(job)
    wanted = np.zeros(len(low), bool)
    for pair in zip(change.ranks[::2], change.ranks[1::2], strict=True):
        a, b = sorted(job.rank_ids.index(rank) for rank in pair)
        wanted |= (low == a) & (high == b)
    transfer = {}
    for rank in graph.ranks:
        of_rank = members_of(job.members, rank.position)
        of_rank = of_rank[wanted[job.members["instance"][of_rank]]]
        rows = np.isin(rank.ops.comm, job.members["comm"][of_rank]) & rank.ops.is_comm
        scaled = np.round(rank.ops.transfer_ns * change.values[0])
        transfer[rank.position] = np.where(rows, scaled, rank.ops.transfer_ns).astype(np.int64)
    return Scenario(transfer_ns=transfer)


def has_role(rank: RankGraph, measures: Measures, role: str) -> Array:
    """Operations whose process group serves the role, but for barriers and those of Python objects, bool per operation;
    for the role "" every communication."""
    if not role:
        return np.asarray(rank.ops.is_comm)
    job = measures.job
    rows = members_of(job.members, rank.position)
    comm = job.members["comm"][rows]
    serves = job.groups["role"][job.instances["group"][job.members["instance"][rows]]] == role
    flag = np.zeros(len(rank.facts.comms), bool)
    flag[comm[serves]] = True
    flag &= ~is_meeting(rank.facts)
    result = np.zeros(len(rank.ops.comm), bool)
    has_comm = rank.ops.comm >= 0
    result[has_comm] = flag[rank.ops.comm[has_comm]]
    return result


def sizes_bytes(rank: RankGraph, rows: Array) -> Array:
    """Message size of each of the operations `rows`; 0 where it was not recorded."""
    sizes = rank.facts.comms["size_bytes"][rank.ops.comm[rows]].astype(float)
    return np.where(sizes == NULL, 0.0, sizes)

"""Traffic and waits per step between pairs of ranks, or of hosts.

The trace shows the members of a collective and their shares, but not how the algorithm routes them. So a pair's
collectives are those that both take part in, its messages those that one sends to the other, and its waiting that of
one charged to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.groups import comm_group_ids, global_peers
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.cost import bus_factor
from ddprof.analyzers.job.waiting.waits import instances_in_steps
from ddprof.tables import NULL, Array, distinct

OUTSIDE = -1  # a rank that is in none of the units


@dataclass(frozen=True)
class Pairs:
    """Square matrices over units; NaN where two units have nothing in common.

    `shared_bytes`: of collectives that both take part in. `sent_bytes`: of messages, [sender, receiver]. `rate_gbps`:
    of all that both take part in, bus bandwidth for collectives. `waits_us`: [who waits, for whom], mean over the ranks
    of who waits. All but the rate per step.
    """

    shared_bytes: Array
    sent_bytes: Array
    rate_gbps: Array
    waits_us: Array


def pairs_of(job: JobFacts, unit_of: Array, units: int) -> Pairs:
    """The traffic of the steps between units. `unit_of`, shape (ranks,): the unit of each rank by position, or OUTSIDE.

    Within a unit of several ranks, on the diagonal, is what two of them take part in.
    """
    steps = min(len(facts.steps) for facts in job.ranks)
    shared, moved, took_ns = (np.zeros((units, units)) for _ in range(3))
    inside = instances_in_steps(job)
    for group in np.unique(job.instances["group"][inside & ~_messages(job)]).tolist():
        of_group = inside & ~_messages(job) & (job.instances["group"] == group)
        both = _both(_members(job, group, of_group), unit_of, units)
        is_sized = of_group & (job.instances["size_bytes"] != NULL) & (job.instances["transfer_ns"] > 0)
        shared += both * float(job.instances["size_bytes"][is_sized].sum())
        moved += both * _bus_bytes(job, is_sized, int(job.groups["size"][group]))
        took_ns += both * float(job.instances["transfer_ns"][is_sized].sum())
    sent = _sent(job, unit_of, units)
    _add_messages(job, inside, unit_of, moved, took_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where((took_ns > 0) & (moved > 0), moved / took_ns, np.nan)
    return Pairs(_or_nothing(shared) / steps, _or_nothing(sent) / steps, rate, _waits(job, unit_of, units) / steps)


def _or_nothing(total: Array) -> Array:
    return np.where(total > 0, total, np.nan)


def _messages(job: JobFacts) -> Array:
    return np.asarray(job.instances["is_message"].astype(bool))


def _members(job: JobFacts, group: int, instances: Array) -> Array:
    """Positions of the traced members: as the group states them, else as recorded."""
    place = {rank: position for position, rank in enumerate(job.rank_ids)}
    stated = [int(rank) for rank in job.groups["ranks"][group].split(",") if rank]
    if stated:
        return np.array([place[rank] for rank in stated if rank in place], np.int64)
    return np.unique(job.members["rank"][instances[job.members["instance"]]])


def _both(positions: Array, unit_of: Array, units: int) -> Array:
    """1 for pairs of units that both have a member; on the diagonal, for units with two members."""
    count = np.bincount(unit_of[positions][unit_of[positions] != OUTSIDE], minlength=units)
    both = np.outer(count > 0, count > 0).astype(float)
    np.fill_diagonal(both, count > 1)
    return both


def _bus_bytes(job: JobFacts, rows: Array, size: int) -> float:
    """Bytes by the bus bandwidth rule of nccl-tests; operations without a rule count in full."""
    ops = job.instances["op"][rows]
    factors = {code: bus_factor(COLLECTIVE_OPS[code], size) or 1.0 for code in np.unique(ops).tolist()}
    return sum(float(job.instances["size_bytes"][rows][ops == code].sum()) * f for code, f in factors.items())


def _sent(job: JobFacts, unit_of: Array, units: int) -> Array:
    """Bytes of the messages of the steps, from the end that recorded more of them; shape (units, units)."""
    by_end = np.zeros((2, units, units))
    place = {rank: position for position, rank in enumerate(job.rank_ids)}
    group_ids, keys = comm_group_ids(job.ranks)
    for position, facts in enumerate(job.ranks):
        unit, group = int(unit_of[position]), group_ids[position][facts.messages["comm"]]
        peers = global_peers(facts.messages["peer"], group, keys, job.rank_ids[position])
        for sends, peer, size_bytes in _messages_of(facts, peers):
            other = int(unit_of[place[peer]]) if peer in place else OUTSIDE
            if OUTSIDE not in (unit, other):
                by_end[int(sends)][(unit, other) if sends else (other, unit)] += size_bytes
    return np.asarray(by_end.max(axis=0))


def _messages_of(facts: RankFacts, peers: Array) -> list[tuple[bool, int, float]]:
    """(sent, peer, bytes) of each peer and direction, in the steps. `peers`: rank numbers, shape (messages,)."""
    messages = facts.messages
    if not len(messages):
        return []
    called = np.where(messages["called_ns"] == NULL, issued_ns(facts.comms)[messages["comm"]], messages["called_ns"])
    is_sized = facts.is_issued_in_steps(called) & (peers != NULL) & (messages["size_bytes"] != NULL)
    sends, peer, size = messages["is_send"][is_sized], peers[is_sized], messages["size_bytes"][is_sized]
    keys, which = distinct(sends, peer)
    total = np.bincount(which, weights=size, minlength=keys.shape[1])
    return [(bool(sent), int(other), float(size)) for (sent, other), size in zip(keys.T.tolist(), total, strict=True)]


def _add_messages(job: JobFacts, inside: Array, unit_of: Array, moved: Array, took_ns: Array) -> None:
    """Messages between two ranks that both recorded them, to the sums of both directions."""
    instances, members = job.instances, job.members
    usable = inside & _messages(job) & (instances["members"] == 2)
    usable &= (instances["size_bytes"] != NULL) & (instances["transfer_ns"] > 0)
    rows = np.flatnonzero(usable[members["instance"]])
    rows = rows[np.argsort(members["instance"][rows], kind="stable")]
    one, other = unit_of[members["rank"][rows[::2]]], unit_of[members["rank"][rows[1::2]]]
    instance = members["instance"][rows[::2]]
    has_units = (one != OUTSIDE) & (other != OUTSIDE)
    for a, b in ((one, other), (other, one)):
        np.add.at(moved, (a[has_units], b[has_units]), instances["size_bytes"][instance[has_units]])
        np.add.at(took_ns, (a[has_units], b[has_units]), instances["transfer_ns"][instance[has_units]])


def _waits(job: JobFacts, unit_of: Array, units: int) -> Array:
    """Exposed waiting by victim and culprit, us over all steps, mean over the ranks that wait."""
    blame, total = job.blame, np.zeros((units, units))
    is_charged = blame["culprit"] != NULL
    victim, culprit = unit_of[blame["victim"][is_charged]], unit_of[blame["culprit"][is_charged]]
    both = (victim != OUTSIDE) & (culprit != OUTSIDE)
    np.add.at(total, (victim[both], culprit[both]), blame["dur_ns"][is_charged][both] / 1e3)
    ranks = np.bincount(unit_of[unit_of != OUTSIDE], minlength=units)
    return np.asarray(total / np.maximum(1, ranks)[:, None])

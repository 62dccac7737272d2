"""Wait and transfer of communications, divided at the arrival of the last member.

Collectives that all members leave together need no clock for that: the shortest member's duration is the transfer, and
what the other members' durations have beyond it is waiting (the rule of PyTorch's TensorBoard profiler plugin). So the
LATE rank shows the SHORT kernel. CPU ranks of one host share a clock, and may leave at different times. Rooted
operations, and messages between two ranks, have no common end: the partner's arrival is read on the aligned clock.
Where a member did not record the communication because its window had not opened, the shortest of the others may hold
waiting too: the transfer is that of complete communications of the same kind. An inferred rendezvous moves no data:
where a rank was not recorded, and nobody who was came right before the end, all of it is waiting for that rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import INFERRED, OP_CODE, ROOTED
from ddprof.analyzers.facts.work import computes
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.model import INSTANCES, MEMBERS, Clock, JobFacts
from ddprof.derived_once import remembered
from ddprof.tables import NULL, Array, Table, distinct

# Rows of MEMBERS by rank, indexed once: a search per rank would pass over all rows a thousand times; and instances in
# steps.


def members_of(members: Table, position: int) -> Array:
    """The rows of a rank, in order."""
    order, begins = _by_rank(members)
    return order[begins[position] : begins[position + 1]] if position + 1 < len(begins) else order[:0]


@remembered
def _by_rank(members: Table) -> tuple[Array, Array]:
    """All rows sorted by rank, and the first row of each position; shape (positions + 1,)."""
    rank = members["rank"]
    return np.argsort(rank, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(rank))))


@remembered
def instances_in_steps(job: JobFacts) -> Array:
    """Mask of instances that run while a member is in a step, shape (instances,): a recording holds more, of the steps
    that are left out and around them.
    """
    inside, members = np.zeros(len(job.instances), bool), job.members
    for position, facts in enumerate(job.ranks):
        rows = members_of(members, position)
        in_steps = intervals.overlap(
            intervals.union(*facts.steps.bounds), members["start_ns"][rows], members["end_ns"][rows]
        )
        inside[members["instance"][rows[in_steps > 0]]] = True
    return inside


# A communication that some member did not record waited for that member if it lasts longer than complete ones of its
# kind by this factor.
UNSEEN_FACTOR = 1.3
MIN_ALIKE = 3  # complete communications of a kind, for a typical transfer
RIGHT_BEFORE = 0.1  # of the longest wait in an inferred rendezvous: an order of magnitude less than that


def split_waits(ranks: Sequence[RankFacts], matched: Matched, clock: Clock, group_size: Array) -> tuple[Table, Table]:
    """INSTANCES and MEMBERS. `group_size`: members each instance should have, shape (instances,)."""
    start, end, offset = _times(ranks, matched, clock)
    count = len(matched.op)
    instance = matched.instance
    seen = np.bincount(instance, minlength=count)
    duration = end - start
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, instance, duration)
    arrival = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(arrival, instance, start - offset)
    aligned = matched.is_message | np.isin(matched.op, ROOTED)
    complete = seen >= np.maximum(group_size, 2)
    limit = _typical_transfer(matched, np.where(complete & ~matched.is_message, shortest, NULL))
    unseen = ~complete & (limit != NULL) & (shortest > UNSEEN_FACTOR * limit)
    inferred = matched.op == OP_CODE[INFERRED]
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, instance, duration)
    unseen = np.where(inferred, ~complete & (shortest > RIGHT_BEFORE * longest), unseen)
    ready_free = end - np.where(unseen, np.where(inferred, 0, limit), shortest)[instance]
    ready_aligned = np.clip(arrival[instance] + offset, start, end)
    ready = np.where(aligned[instance], ready_aligned, np.clip(ready_free, start, end))
    # A CPU rank may leave late on its own account, without a CPU: it waits for nobody who came before.
    exact = _on_one_host(ranks, matched, clock, count) & complete & ~inferred
    ready = np.where(exact[instance], np.minimum(ready, ready_aligned), ready)
    by_start = (aligned | exact)[instance]
    late = _latest(instance, matched.rank, np.where(by_start, start - offset, -duration), count)
    transfer = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(transfer, instance, end - ready)
    instances = INSTANCES.table(
        {
            "op": matched.op,
            "group": matched.group,
            "is_message": matched.is_message,
            "size_bytes": matched.size_bytes,
            "members": seen,
            "transfer_ns": np.where(seen > 0, transfer, 0),
            "complete": complete,
            "late": np.where((seen > 1) & ~unseen, late, NULL),
        }
    )
    members = MEMBERS.table(
        {
            "instance": instance,
            "rank": matched.rank,
            "comm": matched.comm,
            "start_ns": start,
            "end_ns": end,
            "ready_ns": np.where(((seen > 1) | unseen)[instance], ready, start),
        }
    )
    return instances, members


def _on_one_host(ranks: Sequence[RankFacts], matched: Matched, clock: Clock, count: int) -> Array:
    """Communications whose members are CPU ranks of one clock: their starts say who came last.

    Bool, shape (instances,)."""
    names = {name: number for number, name in enumerate(clock.domains)}
    domain = np.array([names[clock.domain_of[p]] if computes(facts) else -1 for p, facts in enumerate(ranks)], np.int64)
    first, last = np.full(count, len(names)), np.full(count, -1)
    np.minimum.at(first, matched.instance, domain[matched.rank])
    np.maximum.at(last, matched.instance, domain[matched.rank])
    return np.asarray((first == last) & (first >= 0))


def _typical_transfer(matched: Matched, transfer_ns: Array) -> Array:
    """Median `transfer_ns` over the instances of the same group, operation and bytes; ns, shape (instances,).

    Instances whose `transfer_ns` is NULL do not count. NULL where fewer than MIN_ALIKE count.
    """
    _, alike = distinct(matched.group, matched.op, matched.size_bytes)
    counted = np.flatnonzero(transfer_ns != NULL)
    counted = counted[np.lexsort((transfer_ns[counted], alike[counted]))]
    kinds, first, counts = np.unique(alike[counted], return_index=True, return_counts=True)
    enough = counts >= MIN_ALIKE
    of_kind = np.full(int(alike.max(initial=0)) + 1, NULL, np.int64)
    of_kind[kinds[enough]] = transfer_ns[counted[(first + counts // 2)[enough]]]
    typical: Array = of_kind[alike]
    return typical


def _times(ranks: Sequence[RankFacts], matched: Matched, clock: Clock) -> tuple[Array, Array, Array]:
    """Start, end and clock offset of each entry of `matched`, ns, own clocks."""
    start, end, offset = np.zeros((3, len(matched.rank)), np.int64)
    for position, (facts, rows) in enumerate(zip(ranks, matched.rows_by_rank(len(ranks)), strict=True)):
        start[rows] = facts.comms["start_ns"][matched.comm[rows]]
        end[rows] = facts.comms["end_ns"][matched.comm[rows]]
        offset[rows] = clock.offset_ns(position)
    return start, end, offset


def _latest(instance: Array, rank: Array, lateness: Array, count: int) -> Array:
    """Position of the member with the largest lateness, per instance."""
    order = np.lexsort((lateness, instance))
    last = np.full(count, NULL)
    last[instance[order]] = rank[order]
    return last


def ready_by_comm(members: Table, position: int, facts: RankFacts) -> Array:
    """Arrival of the last member of each communication of a rank, ns, own clock; its start where unmatched.

    A communication that is a member of several instances (coalesced messages) is ready with the last of them.
    """
    ready = facts.comms["start_ns"].copy()
    rows = members_of(members, position)
    np.maximum.at(ready, members["comm"][rows], members["ready_ns"][rows])
    return ready

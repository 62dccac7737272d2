"""Collectives whose record some rank lost, restored from its peers' records.

A profiler whose buffers are full drops single records. Ranks leave a collective together, so its end is known; where
all that recorded it waited for longer than such a collective takes, they waited for a rank without a record. Without
it a rank's wait looks like time of its own, which no change elsewhere would shorten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.completeness import LOST_SHARE
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.groups.groups import GroupKey
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.model import Clock
from ddprof.analyzers.job.rendezvous.record import booked, inserted
from ddprof.analyzers.job.waiting.members import members_of
from ddprof.analyzers.job.waiting.waits import split_waits
from ddprof.model import HealthNote
from ddprof.tables import NULL, Array, Table
from ddprof.units import format_count, format_ranks

MOST_LOST = 2 * LOST_SHARE  # of a group's collectives: each needs two records; who lacks more takes no part in them


@dataclass(frozen=True)
class _Lost:
    """A collective that a rank lacks; times on that rank's clock, ns."""

    like: int  # row of COMMS of the rank's collective that is most like it
    seq: int
    size_bytes: int
    launch_ns: int
    start_ns: int  # the rank came no later
    end_ns: int
    is_awaited: bool  # by its peers: it came then


def with_lost_collectives(
    ranks: Sequence[RankFacts], matched: Matched, keys: Sequence[GroupKey], clock: Clock, group_size: Array
) -> tuple[RankFacts, ...] | None:
    """The ranks with the collectives that they lack between others that they have, as their peers recorded them; None
    where nothing is restored.

    `group_size`: members that each instance should have, shape (instances,).
    """
    position = {facts.identity.rank: p for p, facts in enumerate(ranks)}
    traced = np.array([sum(number in position for number in group) for group, _ in keys], np.int64)
    seen = np.bincount(matched.instance, minlength=len(matched.op))
    is_met = (seen > 1) & ~matched.is_message
    partial = is_met & (seen < traced[matched.group]) if len(traced) else is_met & False
    if not partial.any():
        return None
    met_by = is_met[matched.instance]
    of_group = matched.group[matched.instance[met_by]] * len(ranks) + matched.rank[met_by]
    held = np.bincount(of_group, minlength=len(keys) * len(ranks)).reshape(len(keys), len(ranks))
    is_few = held >= (1 - MOST_LOST) * np.bincount(matched.group[is_met], minlength=len(keys))[:, None]
    instances, members = split_waits(ranks, matched, clock, group_size)
    of_rank = [members.take(members_of(members, p)) for p in range(len(ranks))]
    order = np.argsort(members["instance"], kind="stable")
    begins = np.searchsorted(members["instance"], np.arange(len(instances)), sorter=order)
    lost: dict[int, list[_Lost]] = defaultdict(list)
    for row in np.flatnonzero(partial).tolist():
        recorded = members.take(order[begins[row] : begins[row] + instances["members"][row]])
        group, _ = keys[int(instances["group"][row])]
        for p in {position[number] for number in group if number in position} - set(recorded["rank"].tolist()):
            launch_ns = _launch_ns(ranks, of_rank, p, recorded) if is_few[instances["group"][row], p] else None
            like = None if launch_ns is None else _most_alike(ranks[p].comms, instances, row, launch_ns)
            if launch_ns is not None and like is not None:
                lost[p].append(_part(ranks, clock, p, recorded, instances, row, like, launch_ns))
    return tuple(_with_lost(f, lost[p]) if lost[p] else f for p, f in enumerate(ranks)) if lost else None


def lost_note(recorded: Sequence[RankFacts], whole: Sequence[RankFacts]) -> HealthNote:
    """Note on collectives that ranks lacked and `whole` has."""
    count = {w.identity.rank: len(w.comms) - len(r.comms) for r, w in zip(recorded, whole, strict=True)}
    ranks = tuple(p if rank is None else rank for p, (rank, lacks) in enumerate(count.items()) if lacks)
    issue = f"{format_ranks(ranks)}: {format_count(sum(count.values()), 'collective')} left no record"
    return HealthNote(issue, "restored from the records of the other ranks", "info")


def _launch_ns(ranks: Sequence[RankFacts], of_rank: Sequence[Table], p: int, recorded: Table) -> int | None:
    """When a rank launched a collective, ns, by what it and a peer launched around it; None where its recording does
    not reach around it.
    """
    peer, comm = int(recorded["rank"][0]), int(recorded["comm"][0])
    _, *rows = np.intersect1d(of_rank[p]["instance"], of_rank[peer]["instance"], return_indices=True)
    here, there = (issued_ns(ranks[q].comms)[of_rank[q]["comm"][i]] for q, i in zip((p, peer), rows, strict=True))
    order, at = np.argsort(there), int(issued_ns(ranks[peer].comms)[comm])
    here, there = here[order], there[order]
    if not len(order) or not there[0] < at < there[-1]:
        return None
    return int(here[0]) + round(float(np.interp(at - there[0], there - there[0], here - here[0])))


def _most_alike(comms: Table, instances: Table, row: int, launch_ns: int) -> int | None:
    """Row of a rank's collective of the same operation nearest in launch, of the same size where there is one."""
    alike = np.flatnonzero(comms["op"] == instances["op"][row])
    same = alike[comms["size_bytes"][alike] == instances["size_bytes"][row]]
    alike = same if len(same) else alike
    return int(alike[np.argmin(np.abs(issued_ns(comms)[alike] - launch_ns))]) if len(alike) else None


def _part(
    ranks: Sequence[RankFacts],
    clock: Clock,
    p: int,
    recorded: Table,
    instances: Table,
    row: int,
    like: int,
    launch_ns: int,
) -> _Lost:
    offset = np.array([clock.offset_ns(q) for q in recorded["rank"].tolist()])
    end_ns = round(float(np.median(recorded["end_ns"] - offset))) + clock.offset_ns(p)
    is_awaited = bool(instances["late"][row] == NULL)
    since = recorded["ready_ns" if is_awaited else "start_ns"]
    seq = ranks[int(recorded["rank"][0])].comms["seq"][int(recorded["comm"][0])]
    return _Lost(
        like=like,
        seq=int(seq),
        size_bytes=int(instances["size_bytes"][row]),
        launch_ns=launch_ns,
        start_ns=end_ns - int((recorded["end_ns"] - since).min()),
        end_ns=end_ns,
        is_awaited=is_awaited,
    )


def _with_lost(facts: RankFacts, lost: Sequence[_Lost]) -> RankFacts:
    """The rank with the collectives that it lost. It came to one that nobody awaited when its device fell idle."""
    like = facts.comms.take(np.array([each.like for each in lost]))
    launch, start, end = (np.array([getattr(o, name) for o in lost]) for name in ("launch_ns", "start_ns", "end_ns"))
    idle = intervals.union(*facts.gaps.bounds)
    row = intervals.row_at(idle, end - 1)
    waits = (row >= 0) & ~np.array([each.is_awaited for each in lost])
    start = np.where(waits, np.minimum(start, np.append(idle[0], 0)[row]), start)
    for at, track in enumerate(like["track"].tolist()):  # a stream runs one at a time
        before = facts.comms["end_ns"][(facts.comms["track"] == track) & (facts.comms["end_ns"] <= end[at])]
        start[at] = max(int(start[at]), int(before.max(initial=0)))
    launch = np.minimum(launch, start)
    times = {"start_ns": start, "end_ns": end, "launch_ns": launch, "launch_end_ns": launch}
    comms = like.replace(**times, seq=[each.seq for each in lost], size_bytes=[each.size_bytes for each in lost])
    ops = facts.device_ops.take(like["device_op"]).replace(**times)
    order = np.argsort(start, kind="stable")
    return booked(*inserted(facts, ops.take(order), comms.take(order)))

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
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.completeness import LOST_SHARE
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.groups import GroupKey
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.model import Clock
from ddprof.analyzers.job.rendezvous.record import booked, inserted
from ddprof.analyzers.job.waiting.waits import members_of, split_waits
from ddprof.model import HealthNote
from ddprof.tables import NULL, Array, Table
from ddprof.units import format_count, format_ranks

MOST_LOST = 2 * LOST_SHARE  # of a group's collectives: each needs two records; who lacks more takes no part in them


@dataclass(frozen=True)
class _Met:
    """A collective as its peers recorded it; reference clock, ns."""

    peer: int  # position of one that recorded it
    comm: int  # row of that rank's COMMS
    op: int
    size_bytes: int
    start_ns: int  # who is not awaited came no later
    end_ns: int
    is_awaited: bool  # the peers waited for a rank without a record, which came at `start_ns`


class _Lost(Struct, frozen=True):
    """A collective that a rank lacks: when it launched it, ns on its clock, and the row of its most similar one."""

    met: _Met
    seq: int
    launch_ns: int
    like: int


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
    is_few = _lack_few(matched, is_met, len(keys), len(ranks))
    instances, members = split_waits(ranks, matched, clock, group_size)
    of_rank = [members.take(members_of(members, p)) for p in range(len(ranks))]
    offsets = np.array([clock.offset_ns(p) for p in range(len(ranks))])
    order = np.argsort(members["instance"], kind="stable")
    begins = np.searchsorted(members["instance"], np.arange(len(instances)), sorter=order)
    lost: dict[int, list[_Lost]] = defaultdict(list)
    for row in np.flatnonzero(partial).tolist():
        recorded = members.take(order[begins[row] : begins[row] + instances["members"][row]])
        met = _met(recorded, instances.take(np.array([row])), offsets)
        group, _ = keys[int(instances["group"][row])]
        for p in {position[number] for number in group if number in position} - set(recorded["rank"].tolist()):
            if is_few[instances["group"][row], p] and (each := _lost_by(p, ranks, of_rank, met)) is not None:
                lost[p].append(each)
    if not lost:
        return None
    return tuple(_with(facts, lost[p], int(offsets[p])) if p in lost else facts for p, facts in enumerate(ranks))


def lost_note(recorded: Sequence[RankFacts], whole: Sequence[RankFacts]) -> HealthNote:
    """Note on collectives that ranks lacked and `whole` has."""
    count = [len(w.comms) - len(r.comms) for r, w in zip(recorded, whole, strict=True)]
    numbers = [p if facts.identity.rank is None else facts.identity.rank for p, facts in enumerate(whole)]
    ranks = format_ranks(tuple(number for number, lacks in zip(numbers, count, strict=True) if lacks))
    issue = f"{ranks}: {format_count(sum(count), 'collective')} left no record"
    return HealthNote(issue, "restored from the records of the other ranks", "info")


def _lack_few(matched: Matched, is_met: Array, groups: int, ranks: int) -> Array:
    """Mask of ranks that recorded nearly all collectives of a group; shape (groups, ranks)."""
    entry = is_met[matched.instance]
    part = matched.group[matched.instance[entry]] * ranks + matched.rank[entry]
    held = np.bincount(part, minlength=groups * ranks).reshape(groups, ranks)
    every = np.bincount(matched.group[is_met], minlength=groups)[:, None]
    return np.asarray(held >= (1 - MOST_LOST) * every)


def _met(recorded: Table, instance: Table, offsets: Array) -> _Met:
    """One collective (`instance`: its row of INSTANCES) by the MEMBERS that recorded it."""
    end_ns = round(float(np.median(recorded["end_ns"] - offsets[recorded["rank"]])))
    is_awaited = bool(instance["late"][0] == NULL)
    since = recorded["ready_ns" if is_awaited else "start_ns"]
    return _Met(
        peer=int(recorded["rank"][0]),
        comm=int(recorded["comm"][0]),
        op=int(instance["op"][0]),
        size_bytes=int(instance["size_bytes"][0]),
        start_ns=end_ns - int((recorded["end_ns"] - since).min()),
        end_ns=end_ns,
        is_awaited=is_awaited,
    )


def _lost_by(p: int, ranks: Sequence[RankFacts], of_rank: Sequence[Table], met: _Met) -> _Lost | None:
    """The part of the rank at position `p`, launched between what it and the peer launched around it; None where its
    recording does not reach around it, or holds nothing alike. `of_rank`: MEMBERS by position.
    """
    _, *rows = np.intersect1d(of_rank[p]["instance"], of_rank[met.peer]["instance"], return_indices=True)
    both = zip((p, met.peer), rows, strict=True)
    here, there = (issued_ns(ranks[q].comms)[of_rank[q]["comm"][i]] for q, i in both)
    order, comms, of_peer = np.argsort(there), ranks[p].comms, ranks[met.peer].comms
    here, there, at = here[order], there[order], int(issued_ns(of_peer)[met.comm])
    alike = np.flatnonzero((comms["op"] == met.op) & (comms["device_op"] != NULL))
    if not len(alike) or not len(order) or not there[0] < at < there[-1]:
        return None
    launch_ns = int(here[0]) + round(float(np.interp(at - there[0], there - there[0], here - here[0])))
    same = alike[comms["size_bytes"][alike] == met.size_bytes]
    alike = same if len(same) else alike
    like = alike[np.argmin(np.abs(issued_ns(comms)[alike] - launch_ns))]
    return _Lost(met, int(of_peer["seq"][met.comm]), launch_ns, int(like))


def _with(facts: RankFacts, lost: Sequence[_Lost], offset_ns: int) -> RankFacts:
    """The rank with the collectives that it lost. It came to one that nobody awaited when its device fell idle."""
    like = facts.comms.take(np.array([each.like for each in lost]))
    start, end = (np.array([getattr(each.met, name) for each in lost]) + offset_ns for name in ("start_ns", "end_ns"))
    idle = intervals.union(*facts.gaps.bounds)
    row = intervals.row_at(idle, end - 1)
    waits = (row >= 0) & ~np.array([each.met.is_awaited for each in lost])
    start = np.where(waits, np.minimum(start, np.append(idle[0], 0)[row]), start)
    for at, track in enumerate(like["track"].tolist()):  # a stream runs one at a time
        before = facts.comms["end_ns"][(facts.comms["track"] == track) & (facts.comms["end_ns"] <= end[at])]
        start[at] = max(int(start[at]), int(before.max(initial=0)))
    launch = np.minimum([each.launch_ns for each in lost], start)
    times = {"start_ns": start, "end_ns": end, "launch_ns": launch, "launch_end_ns": launch}
    sizes = [each.met.size_bytes for each in lost]
    comms = like.replace(**times, seq=[each.seq for each in lost], size_bytes=sizes)
    ops = facts.device_ops.take(like["device_op"]).replace(**times)
    order = np.argsort(start, kind="stable")
    return booked(*inserted(facts, ops.take(order), comms.take(order)))

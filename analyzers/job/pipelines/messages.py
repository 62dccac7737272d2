"""Messages between ranks as both ends recorded them: sender, receiver and number per step.

Ends are counted separately, since the other end has a record that one end lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import early_comms
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.matching import Matched
from ddprof.tables import Array

Link = tuple[int, int]  # positions of sender and receiver
NOT_TRACED = -1


@dataclass(frozen=True)
class Messages:
    """Messages launched in the steps (CPU ranks: called), one row per end that recorded it; parallel arrays."""

    rank: Array  # position of the end that recorded it
    peer: Array  # position of the other one; NOT_TRACED
    sends: Array  # bool: this end sends
    step: Array  # position in the rank's steps
    when_ns: Array  # launch, own clock
    comm: Array  # row of the rank's comms
    instance: Array  # the same at both ends
    steps: Array  # of each rank, shape (ranks,)


def step_messages(ranks: Sequence[RankFacts], matched: Matched) -> Messages:
    """All messages of the steps."""
    of_message = np.flatnonzero(matched.is_message[matched.instance]) if len(matched.instance) else np.empty(0, int)
    position = {f.identity.rank if f.identity.rank is not None else p: p for p, f in enumerate(ranks)}
    numbers = np.unique(matched.peer[of_message])
    places = np.array([position.get(n, NOT_TRACED) for n in numbers.tolist()], np.int64)
    rank = matched.rank[of_message]
    step, when = np.full((2, len(of_message)), -1, np.int64)
    for p, facts in enumerate(ranks):
        of_rank = np.flatnonzero(rank == p)
        if len(of_rank) and len(facts.steps):
            comm = matched.comm[of_message[of_rank]]
            when[of_rank] = issued_ns(facts.comms)[comm]
            is_early = early_comms(facts.comms, facts.device_ops)[comm]
            step[of_rank] = np.where(is_early, -1, intervals.row_at(facts.marks, when[of_rank]))
    kept = step >= 0
    rows = of_message[kept]
    return Messages(
        rank[kept],
        places[np.searchsorted(numbers, matched.peer[rows])],
        matched.side[rows] == 1,
        step[kept],
        when[kept],
        matched.comm[rows],
        matched.instance[rows],
        np.array([len(f.steps) for f in ranks]),
    )


def counts_by_link(messages: Messages) -> dict[Link, dict[int, Array]]:
    """For each link with both ends traced: position of an end -> messages of each step that it recorded."""
    traced = np.flatnonzero(messages.peer != NOT_TRACED)
    if not len(traced):
        return {}
    ranks = len(messages.steps)
    rank, peer, sends = messages.rank[traced], messages.peer[traced], messages.sends[traced]
    end = (np.where(sends, rank * ranks + peer, peer * ranks + rank)) * 2 + sends
    order = np.argsort(end, kind="stable")
    ends, first = np.unique(end[order], return_index=True)
    by_link: dict[Link, dict[int, Array]] = {}
    for one, rows in zip(ends.tolist(), np.split(traced[order], first[1:]), strict=True):
        sender, receiver = divmod(one // 2, ranks)
        observer = sender if one % 2 else receiver
        counts = np.bincount(messages.step[rows], minlength=int(messages.steps[observer]))
        by_link.setdefault((sender, receiver), {})[observer] = counts
    return by_link


def confirmed(observed: Mapping[Link, Mapping[int, Array]], links: Sequence[Link]) -> tuple[int, int, bool]:
    """The least and the most messages per step on any of some links, and whether several ends recorded the most.

    Records may be lost but never invented: the largest count on more than one end is the true one.
    """
    ends = [counts for link in links for counts in observed.get(link, {}).values() if len(counts)]
    if not ends:
        return 0, 0, False
    most = max(int(counts.max()) for counts in ends)
    return min(int(c.min()) for c in ends), most, sum(int(c.max()) == most for c in ends) > 1

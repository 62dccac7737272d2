"""Pipelines found in point-to-point traffic, with the stage of each rank.

Every stage but the first begins a step by receiving, and answers what it received. Ranks of which both send before they
receive exchange what they hold (tokens of experts); those that send and receive at once whenever they communicate, or
send as much from the last to the first as onward, rotate it (context parallelism, a halo): not a pipeline.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.pipelines.messages import (
    NOT_TRACED,
    Link,
    Messages,
    confirmed,
    counts_by_link,
    step_messages,
)
from ddprof.analyzers.job.pipelines.passes import passes_of
from ddprof.analyzers.job.pipelines.rounds import Seen, count_rounds
from ddprof.tables import Array, distinct

# Of the messages to the next stage: as many from the last to the first go around; of v chunks (v - 1) / v do, v <= 8.
AROUND = 0.95


def find_pipeline(ranks: Sequence[RankFacts], matched: Matched) -> Pipeline | None:
    """The pipeline(s) of the job with their stages in order; None without regular point-to-point traffic."""
    messages = step_messages(ranks, matched)
    links = counts_by_link(messages)
    one_way = _one_way(messages)
    first = _begin_by_sending(messages)
    candidates = [_in_order(component, links, first) for component in _components(links)]
    ahead = _ahead(messages)
    candidates = [
        chain
        for chain in candidates
        if one_way & set(chain) and not _exchanges(chain, ahead) and not _goes_around(chain, links)
    ]
    if not candidates:
        return None
    depth = max(len(chain) for chain in candidates)
    chains = [chain for chain in candidates if len(chain) == depth]
    staged = {p for chain in chains for p in chain}
    passes = {p: passes_of(ranks[p]) for p in staged}
    rounds = count_rounds(Seen(chains, links, passes), ranks)
    unsure = rounds.unsure
    untraced = messages.rank[messages.peer == NOT_TRACED]
    if np.isin(untraced, list(staged)).any():
        unsure = "stages send to ranks that were not traced: how many stages there are is unknown"
    stages = tuple(tuple(chain[s] for chain in chains) for s in range(depth))
    named = {facts.sidecar.pipeline.schedule or "" for p in staged if (facts := ranks[p]).sidecar.pipeline is not None}
    return Pipeline(stages, rounds.microbatches, rounds.chunks, unsure, named.pop() if len(named) == 1 else "")


def _components(links: Iterable[Link]) -> list[list[int]]:
    """Sets of ranks connected by messages, each sorted."""
    neighbours = _neighbours(links)
    components, seen = [], set[int]()
    for start in sorted(neighbours):
        if start in seen:
            continue
        component, queue = {start}, [start]
        while queue:
            for other in neighbours[queue.pop()] - component:
                component.add(other)
                queue.append(other)
        seen |= component
        components.append(sorted(component))
    return components


def _neighbours(links: Iterable[Link]) -> dict[int, set[int]]:
    neighbours: dict[int, set[int]] = defaultdict(set)
    for a, b in links:
        neighbours[a].add(b)
        neighbours[b].add(a)
    return neighbours


def _one_way(messages: Messages) -> set[int]:
    """Ranks with a communication that only sends or only receives."""
    (owner, _), of = distinct(messages.rank, messages.comm)
    sent = np.bincount(of, weights=messages.sends, minlength=len(owner))
    count = np.bincount(of, minlength=len(owner))
    return set(owner[(sent == 0) | (sent == count)].tolist())


def _begin_by_sending(messages: Messages) -> set[int]:
    """Ranks that send the first message of most steps."""
    order = np.lexsort((messages.when_ns, messages.step, messages.rank))
    rank, step = messages.rank[order], messages.step[order]
    new = np.ones(len(order), bool)
    new[1:] = (rank[1:] != rank[:-1]) | (step[1:] != step[:-1])
    sends, owner = messages.sends[order][new], rank[new]
    return {p for p in np.unique(owner).tolist() if sends[owner == p].mean() > 1 / 2}


def _exchanges(chain: list[int], ahead: Mapping[Link, bool]) -> bool:
    """True where of each two ranks of a chain with messages both ways both are ahead of the other."""
    of_chain = [is_ahead for (rank, _), is_ahead in ahead.items() if rank in chain]
    return bool(of_chain) and all(of_chain)


def _ahead(messages: Messages) -> dict[Link, bool]:
    """For each rank and peer with messages both ways: whether the rank sends most of its messages before it calls for
    those in turn that the peer sends.
    """
    ranks, traced = len(messages.steps), messages.peer != NOT_TRACED
    pair = messages.rank * ranks + messages.peer
    sends = np.flatnonzero(traced & messages.sends)
    sends = sends[np.lexsort((messages.when_ns[sends], pair[sends]))]
    turn = np.arange(len(sends)) - np.searchsorted(pair[sends], pair[sends])  # 0, 1, ... within its pair
    of_send = dict(zip(messages.instance[sends].tolist(), turn.tolist(), strict=True))
    sent_ns = dict(
        zip(zip(pair[sends].tolist(), turn.tolist(), strict=True), messages.when_ns[sends].tolist(), strict=True)
    )
    before: dict[Link, list[bool]] = defaultdict(list)
    for row in np.flatnonzero(traced & ~messages.sends).tolist():
        own_ns = sent_ns.get((int(pair[row]), of_send.get(int(messages.instance[row]), -1)))
        if own_ns is not None:
            before[int(messages.rank[row]), int(messages.peer[row])].append(own_ns < messages.when_ns[row])
    return {link: 2 * sum(each) > len(each) for link, each in before.items()}


def _goes_around(chain: list[int], links: Mapping[Link, Mapping[int, Array]]) -> bool:
    """True where as much goes from the last rank to the first as onward; with two ranks both are one link."""
    around = confirmed(links, [(chain[-1], chain[0])])[1]
    return len(chain) > 2 and around >= AROUND * confirmed(links, list(itertools.pairwise(chain)))[1]


def _in_order(component: list[int], links: Iterable[Link], first: set[int]) -> list[int]:
    """Ranks of a component from the first stage to the last, along the links from the rank that begins by sending; by
    number where links do not tell.
    """
    neighbours = _neighbours(link for link in links if link[0] in component)
    ends = [p for p in component if len(neighbours[p]) == 1]
    is_line = len(ends) == 2 and all(len(neighbours[p]) <= 2 for p in component)
    start = [p for p in ends if p in first]
    if not is_line or len(start) != 1:
        return component
    chain = start
    while len(chain) < len(component):
        chain.append(next(p for p in neighbours[chain[-1]] if p not in chain[-2:-1]))
    return chain

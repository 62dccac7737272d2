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
    candidates = [
        chain
        for chain in candidates
        if one_way & set(chain) and not _exchanges(chain, messages) and not _goes_around(chain, links)
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


def _exchanges(chain: list[int], messages: Messages) -> bool:
    """True where of each two ranks of a chain with messages both send one before they call for the other's."""
    leads = [_leads(a, b, messages) for a, b in itertools.permutations(chain, 2)]
    return any(leads) and False not in leads


def _leads(one: int, other: int, messages: Messages) -> bool | None:
    """True where a rank sends most messages to another before it calls for those in turn that the other sends; None
    without messages both ways."""
    (sent,) = np.nonzero((messages.rank == one) & (messages.peer == other) & messages.sends)
    (theirs,) = np.nonzero((messages.rank == other) & (messages.peer == one) & messages.sends)
    (received,) = np.nonzero((messages.rank == one) & (messages.peer == other) & ~messages.sends)
    if not len(sent) or not len(theirs) or not len(received):
        return None
    sent, theirs = (rows[np.argsort(messages.when_ns[rows], kind="stable")] for rows in (sent, theirs))
    called_ns = dict(zip(messages.instance[received].tolist(), messages.when_ns[received].tolist(), strict=True))
    turns = zip(messages.when_ns[sent].tolist(), messages.instance[theirs].tolist(), strict=False)
    leads = [sent_ns < called_ns[instance] for sent_ns, instance in turns if instance in called_ns]
    return bool(2 * sum(leads) > len(leads))


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

"""Pipelines found in point-to-point traffic, with the stage of each rank.

Every stage but the first begins a step by receiving, and answers what it received. Ranks of which both send before they
receive exchange what they hold (tokens of experts); those that send and receive at once whenever they communicate, or
send as much from the last to the first as onward, rotate it (context parallelism, a halo); those that all go from
forward to backward without a message exchange gradients or parameters (a server, neighbours): not a pipeline.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.pipelines.bubble import SCHEDULES, schedule_by_order
from ddprof.analyzers.job.pipelines.messages import (
    NOT_TRACED,
    Link,
    Messages,
    Passes,
    confirmed,
    counts_by_link,
    passes_of,
    step_messages,
)
from ddprof.tables import Array, distinct

# Of the messages to the next stage: as many from the last to the first go around; of v chunks (v - 1) / v do, v <= 8.
AROUND = 0.95
MOST_CHUNKS = 8  # per stage; schedules of more are not known
MOST_TENSORS = 4  # that a stage hands on per pass
LOST = 0.1  # of the messages of a step: buffers that overflow lose single records; what misses more is another schedule


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
    passes = {p: passes_of(ranks[p]) for chain in candidates for p in chain}
    candidates = [chain for chain in candidates if not _computes_alone([passes[p] for p in chain])]
    if not candidates:
        return None
    depth = max(len(chain) for chain in candidates)
    chains = [chain for chain in candidates if len(chain) == depth]
    staged = {p for chain in chains for p in chain}
    passes = {p: passes[p] for p in staged}
    rounds = count_rounds(Seen(chains, links, passes), ranks)
    unsure = rounds.unsure
    untraced = messages.rank[messages.peer == NOT_TRACED]
    if np.isin(untraced, list(staged)).any():
        unsure = "stages send to ranks that were not traced: how many stages there are is unknown"
    stages = tuple(tuple(chain[s] for chain in chains) for s in range(depth))
    named = {s.schedule or "" for p in staged if (s := ranks[p].sidecar.pipeline) is not None} & set(SCHEDULES)
    orders = [passes[p].usual_order() for p in sorted(staged)]
    by_order = "" if named or unsure else schedule_by_order(orders, rounds.microbatches, rounds.chunks)
    return Pipeline(stages, rounds.microbatches, rounds.chunks, unsure, named.pop() if len(named) == 1 else by_order)


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


def _computes_alone(passes: Sequence[Passes]) -> bool:
    """True where each rank's backward passes follow its forward passes without a message, as where gradients or
    parameters are exchanged: every stage but the last hands on what it computed before it can go back.
    """
    steps = [rank.hands_on() for rank in passes]
    return any(map(len, steps)) and not any(2 * of_rank.sum() > len(of_rank) for of_rank in steps)


def _ahead(messages: Messages) -> dict[Link, bool]:
    """Links of ranks and peers with messages both ways, each True where the rank sends most of its messages before it
    calls for those in turn that the peer sends.
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


class Rounds(Struct, frozen=True):
    """Microbatches and chunks; `unsure`: why they are uncertain, "" where they are not."""

    microbatches: int
    chunks: int
    unsure: str = ""


@dataclass(frozen=True)
class Seen:
    """Observations of a pipeline. `chains`: positions of its stages in order, one chain per replica."""

    chains: Sequence[Sequence[int]]
    links: Mapping[Link, Mapping[int, Array]]
    passes: Mapping[int, Passes]  # by position

    @property
    def depth(self) -> int:
        """Number of stages."""
        return len(self.chains[0])

    def onward(self) -> list[Link]:
        """Links from each stage to the next."""
        return [link for chain in self.chains for link in itertools.pairwise(chain)]

    def back(self) -> list[Link]:
        """Links from each stage to the one before."""
        return [(b, a) for a, b in self.onward()]

    def around(self) -> list[Link]:
        """Links from the last stage to the first."""
        return [(chain[-1], chain[0]) for chain in self.chains]


def count_rounds(seen: Seen, ranks: Sequence[RankFacts]) -> Rounds:
    """Microbatches and chunks of layers per step, by the passes of the stages.

    A stage of v chunks passes forward v times per microbatch, and sends to the next stage as often. From the last stage
    back to the first only the chunks but the last send: v - 1 times (Megatron-LM section 2.2). What the job's own
    schedule states comes first, then passes that all stages count alike, then messages that several ends recorded
    alike. Where these contradict one another nothing is concluded.
    """
    stated = _stated([ranks[p] for chain in seen.chains for p in chain])
    if stated is not None:
        return stated
    passed = _agreed_passes(seen)
    least, most, sure = confirmed(seen.links, seen.onward())
    around = confirmed(seen.links, seen.around())[1] if seen.depth > 2 else 0
    returned_least, returned, returned_sure = confirmed(seen.links, seen.back())
    if passed:
        chunks = _chunks(seen.depth, passed, most, around)
        if chunks and passed % chunks == 0:
            return Rounds(passed // chunks, chunks)
    elif sure and (returned_sure or not returned) and returned in (0, most):
        chunks = _chunks(seen.depth, 0, most, around)
        if chunks and most % chunks == 0:
            return Rounds(most // chunks, chunks)
    return Rounds(max(1, most - around), 1, _contradiction(seen, min(least, returned_least), max(most, returned)))


def _contradiction(seen: Seen, least: int, most: int) -> str:
    """The contradicting counts of messages and passes, in words."""
    counts = [p.per_step(True, 1) for p in seen.passes.values()]
    fewest, largest = min(int(c.min()) for c in counts), max(int(c.max()) for c in counts)
    messages, passes = _range(least, most), _range(fewest, largest)
    return f"the stages recorded {messages} messages and {passes} forward passes in a step: records are missing"


def _range(least: int, most: int) -> str:
    return f"{least} to {most}" if least < most else f"{most}"


def _stated(ranks: Sequence[RankFacts]) -> Rounds | None:
    """Rounds stated by the job's own schedule, where all stages agree; else None."""
    stated = {s for facts in ranks if (s := facts.sidecar.pipeline) is not None}
    counts = {(s.microbatches or 0, len(s.stage_indices)) for s in stated}
    if len(counts) != 1 or not all(facts.sidecar.pipeline for facts in ranks):
        return None
    microbatches, chunks = counts.pop()
    return Rounds(microbatches, max(1, chunks)) if microbatches > 0 else None


def _agreed_passes(seen: Seen) -> int:
    """Forward passes per step, where every stage has that number in most of its steps; else 0."""
    usual = set()
    for stage in zip(*seen.chains, strict=True):
        passes = [seen.passes[p] for p in stage]
        if not all(len(p.step) for p in passes) or (_returns(seen) and not all(p.knows_backward for p in passes)):
            return 0
        counts = np.concatenate([p.per_step(True, int(p.step.max()) + 1) for p in passes])
        values, times = np.unique(counts, return_counts=True)
        if 2 * times.max() <= len(counts):
            return 0
        usual.add(int(values[times.argmax()]))
    return usual.pop() if len(usual) == 1 else 0


def _returns(seen: Seen) -> bool:
    """True where messages go against the order of more than two stages, as gradients do."""
    onward, back = confirmed(seen.links, seen.onward())[1], confirmed(seen.links, seen.back())[1]
    return back > (1 - LOST) * onward / MOST_TENSORS


def _chunks(depth: int, passed: int, most: int, around: int) -> int:
    """Chunks per stage, from `most` messages to the next stage and `around` from the last to the first, per step, and
    `passed` forward passes (0: unknown); 0 where these contradict one another.

    Of two stages the next one is also the one before, so that messages of both ways add up: (2 v - 1) per microbatch.
    """
    if depth > 2:
        chunks = round(most / (most - around)) if most > around else 0
        per_pass = most / passed if passed else 1.0
        is_sure = chunks and (not around or abs(chunks - most / (most - around)) <= LOST * chunks)
        return chunks if is_sure and _is_whole(per_pass) else 0
    if not passed:
        return 1
    options = sorted(
        (tensors * (2 * chunks - 1) / chunks, chunks)
        for chunks in range(1, MOST_CHUNKS + 1)
        for tensors in range(1, MOST_TENSORS + 1)
    )
    ratio = most / passed
    return next((chunks for usual, chunks in options if (1 - LOST) * usual <= ratio <= usual), 0)


def _is_whole(ratio: float) -> bool:
    """True where `ratio` is a small whole number (tensors per pass), or less by what lost records explain."""
    whole = np.ceil(ratio - 1e-9)
    return bool(1 <= whole <= MOST_TENSORS and ratio >= (1 - LOST) * whole)

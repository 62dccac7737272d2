"""Ways of gradients other than one all-reduce of all ranks: through smaller groups in turn, or through one rank.

A hierarchical all-reduce sums inside groups, then across them, and hands the sum out inside again. A ring all-reduce of
n ranks moves 2 (n - 1) / n of the bytes over each link (Patarasuk and Yuan 2009), as do groups of a and b = n / a in
turn: 2 (a - 1) / a + 2 (b - 1) / (a b). A server's link carries 2 (n - 1) times the bytes, n times as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.derived_once import remembered

HIERARCHICAL, SERVER = "hierarchical all-reduce", "parameter server"
_HIERARCHY = (("reduce_scatter", "all_gather"), ("reduce", "broadcast"))
_SERVED = (("reduce", "broadcast"), ("gather", "scatter"))
ALIKE = 0.1  # of the calls or bytes there and back, which a window's edges may cut off
FEWEST_SERVED = 3  # ranks: of two, each is the only other one of its peer


class GradientWay(Struct, frozen=True):
    """The way of the gradients. `kind`: HIERARCHICAL or SERVER; `ops`: its calls; `words`: what it is and costs."""

    kind: str
    ops: tuple[str, ...]
    words: tuple[str, str]


@remembered
def route_of(job: JobFacts) -> GradientWay | None:
    """The way that the gradients take, where it is none of one all-reduce and is seen on all steps of a rank."""
    if job.pipeline is not None or job.world_size < 2:
        return None
    for position in range(len(job.ranks)):
        route = next(_of_collectives(job, position), None)
        if route is not None:
            return route
    return _by_messages(job)


def _of_collectives(job: JobFacts, position: int) -> Iterator[GradientWay]:
    calls: Counter[tuple[int, str]] = Counter()
    instance = job.members["instance"][members_of(job.members, position)]
    for group, op in zip(
        job.instances["group"][instance].tolist(), job.instances["op"][instance].tolist(), strict=True
    ):
        calls[group, COLLECTIVE_OPS[op]] += 1
    steps, size = len(job.ranks[position].steps), job.groups["size"]
    free = [g for g in sorted({group for group, _ in calls}) if job.groups["role"][g] in ("", "dp") and size[g] > 1]
    for inner in free:
        for there, back in _HIERARCHY:
            for outer in free:
                counts = [calls[inner, there], calls[outer, "all_reduce"], calls[inner, back]]
                crosses = inner != outer and size[inner] * size[outer] == job.world_size
                if crosses and min(counts) >= steps and max(counts) - min(counts) <= max(1, ALIKE * max(counts)):
                    yield _hierarchical(job, inner, outer, (there, "all_reduce", back))
        for there, back in _SERVED:
            pair = [calls[inner, there], calls[inner, back]]
            if (
                size[inner] == job.world_size
                and min(pair) >= steps
                and max(pair) - min(pair) <= max(1, ALIKE * max(pair))
            ):
                cost = f"one all_reduce moves no more bytes than {there} and {back}, and waits once"
                yield GradientWay(SERVER, (there, back), ("gradients go to one rank, which hands out the result", cost))


def _hierarchical(job: JobFacts, inner: int, outer: int, ops: tuple[str, ...]) -> GradientWay:
    """The route by groups, with whether it fits the hosts."""
    hosts = {rank: job.clock.domain_of[p] for p, rank in enumerate(job.rank_ids)}
    members = [int(rank) for rank in str(job.groups["ranks"][inner]).split(",") if rank]
    inside = len({hosts[rank] for rank in members if rank in hosts}) == 1
    if len(set(hosts.values())) == 1:
        fits = "here all ranks are on one machine"
    else:
        fits = "here they lie within hosts" if inside else "here they cross hosts"
    sizes = f"groups of {job.groups['size'][inner]} ranks, then across {job.groups['size'][outer]} groups"
    cost = "three calls beat one all_reduce only where links inside the groups are faster than between them"
    return GradientWay(HIERARCHICAL, ops, (f"gradients are summed in {sizes}", f"{cost}; {fits}"))


def _by_messages(job: JobFacts) -> GradientWay | None:
    """The server that all messages go to or come from, as many bytes there as back."""
    is_message = job.instances["is_message"][job.members["instance"]].astype(bool)
    if not is_message.any() or job.world_size < FEWEST_SERVED or job.missing_ranks:
        return None
    held = [np.flatnonzero(facts.messages["peer"] >= 0) for facts in job.ranks]
    peers = [set(facts.messages["peer"][rows].tolist()) for facts, rows in zip(job.ranks, held, strict=True)]
    hubs = [p for p, seen in enumerate(peers) if seen == set(job.rank_ids) - {job.rank_ids[p]}]
    if len(hubs) != 1 or any(seen != {job.rank_ids[hubs[0]]} for p, seen in enumerate(peers) if p != hubs[0]):
        return None
    messages = job.ranks[hubs[0]].messages
    sent, received = (int(messages["size_bytes"][messages["is_send"] == way].sum()) for way in (True, False))
    if min(sent, received) <= 0 or abs(sent - received) > ALIKE * max(sent, received):
        return None
    cost = f"its link carries {job.world_size} times what one all_reduce moves over each link"
    return GradientWay(SERVER, ("send", "recv"), (f"gradients go to rank {job.rank_ids[hubs[0]]} and come back", cost))

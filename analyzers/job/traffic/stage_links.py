"""Comparison of links, to find those slower for equal messages: between ranks, and of groups that do the same.

The stages of a pipeline have one process group, whatever link a message takes, so the two ranks of a message stand for
its link. A message has started to move once both of its ranks are there: the shorter of their two kernels is its
transfer, whatever their clocks say.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.waits import instances_in_steps
from ddprof.hardware import times_slower_between_nodes
from ddprof.tables import NULL, Array, distinct

# Transfers compared between groups that do the same thing: which groups are slow for the same message.

MIN_RATIO = 1.3  # slower than the typical group; groups of one role differ by a few per cent
MIN_TRANSFERS = 2  # of the slowest group: one odd transfer accuses no link

_Unsized = tuple[tuple[int, ...], int]


class SlowGroups(Struct, frozen=True):
    """Groups of one role and size whose transfers are slow, beside those that are not."""

    role: str
    size: int  # members of each
    groups: tuple[int, ...]  # rows of JobFacts.groups
    members: frozenset[int]  # rank numbers
    fast_members: frozenset[int]
    ratio: float
    slow_us: float
    peer_us: float
    excess_us: float  # per step, in the slowest group


def slow_groups(job: JobFacts) -> list[SlowGroups]:
    """One entry per role and number of members whose groups are in part clearly slower than the typical one for the
    same op and size. Where sizes were not recorded, groups are compared whose ranks are in the same stages and that
    call equally often in a step.

    Where groups have no names, the number of members separates the dimensions of a mesh.
    """
    ratios: dict[tuple[str, int], dict[int, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    serves = list(zip(job.groups["role"].tolist(), job.groups["size"].tolist(), strict=True))
    instances = job.instances
    usable = (instances["members"] > 1) & (instances["transfer_ns"] > 0) & ~instances["is_message"].astype(bool)
    key = np.stack((instances["op"].astype(np.int64), instances["size_bytes"]))[:, usable]
    group, transfer = instances["group"][usable], instances["transfer_ns"][usable]
    for op, size in np.unique(key, axis=1).T.tolist():
        same = (key[0] == op) & (key[1] == size)
        alike: dict[tuple[tuple[str, int], _Unsized | None], list[int]] = defaultdict(list)
        for g, calls in zip(*np.unique(group[same], return_counts=True), strict=True):
            alike[serves[g], _unsized(job, int(g), int(calls)) if size == NULL else None].append(int(g))
        for (served, _), members in alike.items():
            if len(members) < 2:
                continue
            medians = {g: float(np.median(transfer[same & (group == g)])) for g in members}
            typical = averages.typical(medians.values())
            for g, value in medians.items():
                ratios[served][g].append((value / typical, value, typical))
    steps = max(1, len(job.per_step_ns))
    return [s for (role, _), groups in ratios.items() if (s := _judge(job, role, groups, steps)) is not None]


def _unsized(job: JobFacts, group: int, calls: int) -> _Unsized:
    """Pipeline stages of a group's ranks, and its calls per step: what stands for sizes that were not recorded."""
    members, stages = _members(job, [group]), job.pipeline.stages if job.pipeline is not None else ()
    numbers = (number for number, ranks in enumerate(stages) if members & {job.rank_ids[p] for p in ranks})
    return tuple(numbers), round(calls / max(1, len(job.per_step_ns)))


def _judge(
    job: JobFacts, role: str, groups: dict[int, list[tuple[float, float, float]]], steps: int
) -> SlowGroups | None:
    overall = {g: float(np.median([r for r, _, _ in values])) for g, values in groups.items()}
    slow = sorted(g for g, r in overall.items() if r >= MIN_RATIO)
    if not slow or len(slow) == len(overall):
        return None
    worst = max(slow, key=lambda g: overall[g])
    of_worst = job.instances["group"] == worst
    if of_worst.sum() < MIN_TRANSFERS:
        return None
    of_steps = of_worst & instances_in_steps(job)
    total = float(job.instances["transfer_ns"][of_steps].sum()) / steps / 1e3
    slow_us, peer_us = (float(np.median([v[i] for v in groups[worst]])) / 1e3 for i in (1, 2))
    return SlowGroups(
        role=role,
        size=int(job.groups["size"][worst]),
        groups=tuple(slow),
        members=_members(job, slow),
        fast_members=_members(job, [g for g in overall if g not in slow]),
        ratio=overall[worst],
        slow_us=slow_us,
        peer_us=peer_us,
        excess_us=total * (1 - 1 / overall[worst]),
    )


def _members(job: JobFacts, groups: list[int]) -> frozenset[int]:
    return frozenset(int(r) for g in groups for r in job.groups["ranks"][g].split(",") if r)


MIN_MESSAGES = 4  # per link and kind, for a median that one odd message does not move
SAME_FAULT = 0.5  # of the slowest link's excess: what another link must have to be called slow beside it


class SlowLinks(Struct, frozen=True):
    """Links that are clearly slower than the others that carry the same messages."""

    pairs: tuple[tuple[int, int], ...]  # positions of the two ranks of each, lower first
    culprits: tuple[int, ...]  # positions: of all slow links, or the one rank whose links are the slow ones
    ratio: float  # of the slowest
    slow_us: float  # per message
    peer_us: float
    excess_us: float  # per step, of the slowest
    only_factor: float = 0.0  # no other link compares: held against this many times the links inside a host


class _Messages(Struct, frozen=True):
    """Messages of which both sides were traced, parallel arrays."""

    pair: Array  # lower position * ranks + higher position
    kind: Array  # messages of one kind are comparable
    dur_ns: Array
    in_steps: Array  # the others are of steps that are left out, or around them
    crosses: Array  # between two hosts
    alike: Array  # of one kind but for that


def stage_links(job: JobFacts) -> tuple[int, SlowLinks | None]:
    """Number of comparable links, and the slow ones among them."""
    messages = _messages(job)
    ratios: dict[int, list[tuple[float, float, float, float]]] = {}  # ratio, median, usual; usual over inside a host
    for kind in np.unique(messages.kind).tolist():
        medians = _medians(messages, messages.kind == kind)
        factor = times_slower_between_nodes(job.ranks[0].device.name) if len(medians) == 1 else 0.0
        comparable = _inside_hosts(messages, kind) if factor else medians
        if not comparable:
            continue
        usual = averages.typical(list(comparable.values())) * (factor or 1.0)
        for pair, median in medians.items():
            ratios.setdefault(pair, []).append((median / usual if usual > 0 else 1.0, median, usual, factor))
    return len(ratios), _slow(job, messages, ratios)


def _medians(messages: _Messages, chosen: Array) -> dict[int, float]:
    """Median duration (ns) of the chosen messages by pair, of pairs that exchanged enough of them."""
    pairs, counts = np.unique(messages.pair[chosen], return_counts=True)
    return {p: float(np.median(messages.dur_ns[chosen & (messages.pair == p)])) for p in pairs[counts >= MIN_MESSAGES]}


def _inside_hosts(messages: _Messages, kind: int) -> dict[int, float]:
    """Median duration (ns) of messages like those of a kind on other links inside a host, by pair."""
    of_kind = messages.kind == kind
    others = ~messages.crosses & ~np.isin(messages.pair, messages.pair[of_kind])
    return _medians(messages, others & np.isin(messages.alike, messages.alike[of_kind]))


def message_ends(job: JobFacts) -> tuple[Array, Array]:
    """The lower and the higher position of the ranks of each instance that is a message of two traced ranks; -1, -1 of
    all others. Shape (instances,) each.
    """
    instances, members = job.instances, job.members
    ends = np.full((2, len(instances)), -1)
    rows = _both_sides(job)
    if len(rows):
        ends[:, members["instance"][rows[:, 0]]] = np.sort(members["rank"][rows], axis=1).T
    return ends[0], ends[1]


def _both_sides(job: JobFacts) -> Array:
    """The two rows of MEMBERS of each message of which both ranks were traced; shape (messages, 2)."""
    instance = job.members["instance"]
    whole = job.instances["is_message"].astype(bool) & (job.instances["members"] == 2)
    rows = np.flatnonzero(whole[instance]) if len(whole) else np.empty(0, np.int64)
    return np.asarray(rows[np.argsort(instance[rows], kind="stable")].reshape(-1, 2))


def _slow(
    job: JobFacts, messages: _Messages, ratios: dict[int, list[tuple[float, float, float, float]]]
) -> SlowLinks | None:
    overall = {pair: float(np.median([r for r, *_ in measured])) for pair, measured in ratios.items()}
    worst = max(overall, key=lambda pair: overall[pair], default=None)
    if worst is None or overall[worst] < MIN_RATIO:
        return None
    least = 1 + max(MIN_RATIO - 1, SAME_FAULT * (overall[worst] - 1))
    slow = sorted(pair for pair, ratio in overall.items() if ratio >= least)
    count = len(job.ranks)
    pairs = tuple((pair // count, pair % count) for pair in slow)
    rest = {p for pair in overall if pair not in slow for p in divmod(pair, count)}
    of_steps = (messages.pair == worst) & messages.in_steps
    total_us = float(messages.dur_ns[of_steps].sum()) / max(1, len(job.per_step_ns)) / 1e3
    slow_us, peer_us = (float(np.median([measured[i] for measured in ratios[worst]])) / 1e3 for i in (1, 2))
    return SlowLinks(
        pairs,
        _culprits(pairs, rest),
        overall[worst],
        slow_us,
        peer_us,
        total_us * (1 - 1 / overall[worst]),
        max(factor for *_, factor in ratios[worst]),
    )


def _culprits(pairs: tuple[tuple[int, int], ...], elsewhere: set[int]) -> tuple[int, ...]:
    """The rank that all slow links share, where there are several and one such rank; else all ranks of slow links."""
    shared = set.intersection(*map(set, pairs)) - elsewhere
    if len(pairs) > 1 and len(shared) == 1:
        return tuple(shared)
    return tuple(sorted({p for pair in pairs for p in pair}))


def _messages(job: JobFacts) -> _Messages:
    """Messages of one kind have the same size, lie both inside a host or both between two, and share their kernel with
    equally many others. Where sizes were not recorded, they also join the same two stages: a link that is alone
    there is held against the links of other stages only as if it were between two nodes.
    """
    instances, members = job.instances, job.members
    rows = _both_sides(job)
    if not len(rows):
        none = np.empty(0, np.int64)
        return _Messages(none, none, none, none.astype(bool), none.astype(bool), none)
    instance = members["instance"][rows[:, 0]]
    rank = np.sort(members["rank"][rows], axis=1)
    dur_ns = (members["end_ns"] - members["start_ns"])[rows].min(axis=1)
    _, kernel = distinct(members["rank"], members["comm"])
    shares = np.bincount(kernel)[kernel][rows].max(axis=1)  # messages that the kernel of either side carries
    hosts = np.unique(np.array(job.clock.domain_of), return_inverse=True)[1]
    crosses = hosts[rank[:, 0]] != hosts[rank[:, 1]]
    size = instances["size_bytes"][instance]
    between = np.where((size == NULL)[:, None], _stage_of(job)[rank], -1)
    alike = np.unique(np.column_stack((size, shares)), axis=0, return_inverse=True)[1].reshape(-1)
    kind = np.unique(np.column_stack((alike, between, crosses)), axis=0, return_inverse=True)[1].reshape(-1)
    in_steps = instances_in_steps(job)[instance]
    return _Messages(rank[:, 0] * len(job.ranks) + rank[:, 1], kind, dur_ns, in_steps, crosses, alike)


def _stage_of(job: JobFacts) -> Array:
    """The pipeline stage of each rank; a rank without one is a stage of its own."""
    stage = -1 - np.arange(len(job.ranks))
    for number, members in enumerate(job.pipeline.stages if job.pipeline is not None else ()):
        stage[list(members)] = number
    return stage

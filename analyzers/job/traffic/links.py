"""Transfers compared between groups that do the same thing: which groups are slow for the same message."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.members import instances_in_steps
from ddprof.tables import NULL

MIN_RATIO = 1.3  # slower than the typical group; groups of one role differ by a few per cent
MIN_MESSAGES = 2  # of the slowest group: one odd transfer accuses no link

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
    if of_worst.sum() < MIN_MESSAGES:
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

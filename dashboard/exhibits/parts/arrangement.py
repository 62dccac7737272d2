"""Orders in which the timeline can arrange ranks: by lateness, and by process groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.dashboard.exhibits.parts.numbers import lateness_us, typical_us
from ddprof.units import format_ranks

# Roles of groups (analyzers/job/groups.py) by which ranks are put together, and how a group is called.
_ROLES = {
    "tp": (("tp",), "tensor-parallel"),
    "dp": (("dp", "fsdp_shard", "replicate"), "data-parallel"),
}
Grouping = dict[str, Any]


def arrangement(job: JobFacts) -> dict[str, Any]:
    """The ranks' arrangement. `lateness_us`: [rank, median over the steps] of the ranks where it is known, as on the
    page Ranks & steps. `groupings`: for each role the groups as [label, ranks], or the reason why there are none.
    """
    late = typical_us(lateness_us(job))
    rows = [[rank, float(us)] for rank, us in zip(job.rank_ids, late, strict=True) if np.isfinite(us)]
    return {"lateness_us": rows, "groupings": [_by_role(job, "tp"), _by_stage(job), _by_role(job, "dp")]}


def _grouping(name: str, words: str, groups: Sequence[tuple[str, Sequence[int]]], why: str = "") -> Grouping:
    return {"id": name, "words": words, "groups": [[label, list(ranks)] for label, ranks in groups], "why": why}


def _by_role(job: JobFacts, name: str) -> Grouping:
    roles, called = _ROLES[name]
    words, traced = f"{called} group", set(job.rank_ids)
    for role in roles:
        listed = (ranks for ranks, of in zip(job.groups["ranks"], job.groups["role"], strict=True) if of == role)
        members = {tuple(sorted(traced & set(map(int, str(ranks).split(","))))) for ranks in listed if ranks}
        rank_groups = sorted(ranks for ranks in members if ranks)
        if not rank_groups:
            continue
        why = _unusable(rank_groups, len(job.rank_ids), called)
        groups = [(f"{called} group: {format_ranks(ranks)}", ranks) for ranks in rank_groups]
        return _grouping(name, words, () if why else groups, why)
    return _grouping(name, words, (), f"no group of this run is known to be {called}")


def _unusable(groups: Sequence[tuple[int, ...]], ranks: int, called: str) -> str:
    """The reason why groups do not partition the ranks; "" where they do."""
    if sum(map(len, groups)) > len(set().union(*groups)):
        return f"the {called} groups overlap"
    if len(groups[0]) == ranks:
        return f"one {called} group holds every rank"
    return f"every {called} group has one rank" if all(len(of) == 1 for of in groups) else ""


def _by_stage(job: JobFacts) -> Grouping:
    words = "pipeline stage"
    if job.pipeline is None:
        return _grouping("pp", words, (), "no pipeline is seen in what the ranks send")
    stages = [tuple(job.rank_ids[position] for position in stage) for stage in job.pipeline.stages]
    return _grouping("pp", words, [(f"stage {number}: {format_ranks(of)}", of) for number, of in enumerate(stages)])

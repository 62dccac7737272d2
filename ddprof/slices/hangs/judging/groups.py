"""Process groups of a job, merged from the ranks' statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddprof.slices.hangs.model import Call, Group, RankEvidence


@dataclass(frozen=True)
class JobGroup:
    """A group, its members, and the collectives that each member called in it, in order."""

    group: Group
    calls: Mapping[int, tuple[Call, ...]]  # by rank; () where the rank's record shows none

    @property
    def unseen(self) -> tuple[int, ...]:
        """Members without any evidence."""
        return tuple(sorted(set(self.group.ranks) - set(self.calls)))


def job_groups(ranks: Sequence[RankEvidence]) -> list[JobGroup]:
    """Every group in which a collective was called, in the order of its first call.

    torch gives groups of different ranks one name where they were split from one (`split_group`): a group is its name
    and its ranks. Where a dump names no ranks, those that called something in it are taken for them.
    """
    stated: dict[str, set[tuple[int, ...]]] = {}
    for evidence in ranks:
        for name, group in evidence.groups.items():
            if group.ranks:
                stated.setdefault(name, set()).add(group.ranks)
    calls_of: dict[tuple[str, tuple[int, ...]], dict[int, tuple[Call, ...]]] = {}
    descriptions: dict[tuple[str, tuple[int, ...]], str] = {}
    for evidence in (e for e in ranks if not e.is_partial):
        for name in dict.fromkeys(call.group for call in evidence.calls if call.peer is None):
            of_name = evidence.groups.get(name, Group(name))
            key = (name, of_name.ranks or _stated_for(evidence.rank, stated.get(name, set())))
            calls_of.setdefault(key, {})[evidence.rank] = tuple(
                call for call in evidence.calls if call.group == name and call.peer is None
            )
            descriptions.setdefault(key, of_name.description)
    jobs = []
    for (name, members), calls in calls_of.items():
        everyone = members or _callers(name, ranks)
        silent = [e for e in ranks if e.rank in everyone and e.rank not in calls and _is_silent(e)]
        whole = {**calls, **{e.rank: () for e in silent}}
        jobs.append(JobGroup(Group(name, descriptions[name, members], everyone), whole))
    return sorted(jobs, key=lambda job: min((c[0].entered_ns or 0 for c in job.calls.values() if c), default=0))


def _is_silent(evidence: RankEvidence) -> bool:
    """True where a rank without a call in a group is inside none: it ended, or made none (assumed without numbers)."""
    return evidence.ending.how in ("killed", "finished") if evidence.is_partial else evidence.has_calls


def _stated_for(rank: int, candidates: set[tuple[int, ...]]) -> tuple[int, ...]:
    """The only group of a name that a rank can be a member of; () where there is not exactly one."""
    fitting = [ranks for ranks in candidates if rank in ranks]
    return fitting[0] if len(fitting) == 1 else ()


def _callers(name: str, ranks: Sequence[RankEvidence]) -> tuple[int, ...]:
    """Members of a group that no rank states: the whole job for the default group, else its callers."""
    if name in ("", "0"):
        worlds = {e.world_size for e in ranks if e.world_size}
        return tuple(range(worlds.pop())) if len(worlds) == 1 else tuple(e.rank for e in ranks)
    return tuple(e.rank for e in ranks if any(call.group == name for call in e.calls))

"""Which rank that was not read to read next: one that ranks which were read wait for, else one that shows more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.unread import unread_wait_ns
from ddprof.analyzers.sampling.choose import RankSample, news
from ddprof.analyzers.sampling.traits import KINDS
from ddprof.findings import WARNING_SHARE
from ddprof.units import format_ranks, format_us


@dataclass(frozen=True)
class NextRank:
    """A rank, and the reason in a clause."""

    rank: int
    why: str


def next_rank(job: JobFacts, sample: RankSample) -> NextRank | None:
    """The rank to read next; None where no reason prefers any."""
    unread = [rank for rank, _ in sample.unread if rank is not None]
    return _waited_for(job, unread) or _shows_more(sample)


def _waited_for(job: JobFacts, unread: Sequence[int]) -> NextRank | None:
    """An unread rank in most of the groups whose members seem to wait for somebody who was not read."""
    excess_ns = unread_wait_ns(job)
    members = [{int(rank) for rank in text.split(",") if rank} for text in job.groups["ranks"]]
    by_rank = {rank: sum(ns for ns, group in zip(excess_ns, members, strict=True) if rank in group) for rank in unread}
    most = max(by_rank.values(), default=0.0)
    steps = max(1, len(job.per_step_ns))
    if most / steps < WARNING_SHARE * job.step_ns or not most:
        return None
    alike = tuple(rank for rank, ns in sorted(by_rank.items()) if ns == most)
    which = "" if len(alike) == 1 else f" (or another of {format_ranks(alike)})"
    longer = f"{format_us(most / steps / 1e3)} per step longer than those of groups of its kind"
    why = f"collectives of its groups last {longer}, and nobody who was read came last{which}: it, or whom it waits for"
    return NextRank(alike[0], why)


def _shows_more(sample: RankSample) -> NextRank | None:
    seen = set().union(*sample.read)
    found = [(news(shown, seen), rank, shown) for rank, shown in sample.unread if rank is not None and shown - seen]
    if not found:
        return None
    _, rank, shown = max(found, key=lambda entry: (entry[0], -entry[1]))
    new = [kind for kind in KINDS if any(trait[0] == kind for trait in shown - seen)]
    return NextRank(rank, f"it shows a {new[0]} of which no rank was read")

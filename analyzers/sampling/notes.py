"""Notes of a report on a sample: its coverage, its limits, and the rank to read next."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.unread import unread_wait_ns
from ddprof.analyzers.sampling.choose import KINDS, RankSample, counts, news
from ddprof.findings import WARNING_SHARE
from ddprof.model import HealthNote
from ddprof.units import format_ranks, format_us

_UNKNOWN = "the others are in no average; waits for them are charged to no rank"


def sample_notes(sample: RankSample, job: JobFacts) -> list[HealthNote]:
    """The notes; [] where all ranks were read."""
    if not sample.unread:
        return []
    read = f"{len(sample.sources)} of {sample.total} ranks were read (--ranks {sample.wanted.text})"
    notes = [HealthNote(f"{read}, {_coverage(sample)}", _UNKNOWN, "info")]
    following = next_rank(job, sample)
    if following is not None:
        words = f"read rank {following.rank} next: {following.why}"
        notes.append(HealthNote(words, f"--ranks {sample.wanted.and_rank(following.rank)}", "info"))
    return notes


def _coverage(sample: RankSample) -> str:
    """The known stages, hosts and groups that the sample covers, in words."""
    read, known = counts(sample.read), counts([*sample.read, *(shown for _, shown in sample.unread)])
    if not known:
        return "spread evenly: neither names nor headers tell stages, hosts or groups"
    parts = []
    for kind, total in known.items():
        shown = read.get(kind, 0)
        if total > 1:
            parts.append(f"all {total} {kind}s" if shown == total else f"{shown} of {total} {kind}s")
    return f"which show {', '.join(parts)}" if parts else "all of one host"


class NextRank(Struct, frozen=True):
    """A rank, and the reason in a clause."""

    rank: int
    why: str


def next_rank(job: JobFacts, sample: RankSample) -> NextRank | None:
    """The rank to read next; None where no reason prefers any."""
    unread = [rank for rank, _ in sample.unread if rank is not None]
    return _waited_for(job, unread) or _shows_more(sample)


def _waited_for(job: JobFacts, unread: Sequence[int]) -> NextRank | None:
    """An unread rank in most of the groups whose members seem to wait for an unread member; None without one."""
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
    why = (
        f"collectives of its groups last {longer}, and no rank that was read came last{which}: it, or whom it waits for"
    )
    return NextRank(alike[0], why)


def _shows_more(sample: RankSample) -> NextRank | None:
    seen = set().union(*sample.read)
    candidates = [
        (news(shown, seen), rank, shown) for rank, shown in sample.unread if rank is not None and shown - seen
    ]
    if not candidates:
        return None
    _, rank, shown = max(candidates, key=lambda entry: (entry[0], -entry[1]))
    new = [kind for kind in KINDS if any(trait[0] == kind for trait in shown - seen)]
    return NextRank(rank, f"it shows a {new[0]} of which no rank was read")

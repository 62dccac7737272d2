"""Choice of a sample of ranks: few, but showing every pipeline stage, host and tensor-parallel group where possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof.analyzers.job.groups import role_by_name
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.waits import UNSEEN_FACTOR
from ddprof.errors import NoUsableInput, UsageError
from ddprof.findings import WARNING_SHARE
from ddprof.model import HealthNote, ProcessGroup
from ddprof.readers import Source
from ddprof.readers.admission.stated import Stated, stated_by
from ddprof.tables import Array, distinct
from ddprof.units import format_ranks, format_us

STAGE, HOST, TENSOR_GROUP, GROUP = "pipeline stage", "host", "tensor-parallel group", "other process group"
KINDS = (STAGE, HOST, TENSOR_GROUP, GROUP)  # in the order in which a small sample shows them
Trait = tuple[str, object]  # kind, which one
Traits = frozenset[Trait]
ALL = "all"
_SAMPLE = "sample:"


class RankSample(Struct, frozen=True):
    """The sources to read, and the properties that each rank would show. `unread`: ranks whose source is left out."""

    wanted: Wanted
    sources: tuple[Source, ...]
    total: int = 0
    read: tuple[Traits, ...] = ()
    unread: tuple[tuple[int | None, Traits], ...] = ()


def sample(sources: Sequence[Source], wanted: Wanted) -> RankSample:
    """The sources that are read of a run. Raises NoUsableInput where it has none of the ranks that are named."""
    if wanted.is_all or (wanted.count is not None and wanted.count >= len(sources)):
        return RankSample(wanted, tuple(sources))
    stated = stated_by(sources)
    ranks = [s.rank if s.rank is not None else at for at, s in enumerate(stated)]
    world_size = max(len(sources), max(ranks) + 1)
    shown = [traits_of(s, world_size) for s in stated]
    first = [at for at, rank in enumerate(ranks) if rank in wanted.named]
    if not first and wanted.count is None:
        raise NoUsableInput(f"--ranks {wanted.text}: none of these ranks has a trace")
    order = sorted(range(len(sources)), key=lambda at: ranks[at])
    chosen = set(greedy([shown[at] for at in order], [order.index(at) for at in first], wanted.count or 0))
    taken = {order[position] for position in chosen}
    return _sample(wanted, stated, shown, taken)


def _sample(wanted: Wanted, stated: Sequence[Stated], shown: Sequence[Traits], taken: set[int]) -> RankSample:
    left = [at for at in range(len(stated)) if at not in taken]
    return RankSample(
        wanted,
        tuple(stated[at].source for at in sorted(taken)),
        len(stated),
        tuple(shown[at] for at in sorted(taken)),
        tuple((stated[at].rank, shown[at]) for at in left),
    )


def greedy(shown: Sequence[Traits], first: Sequence[int], count: int) -> list[int]:
    """Positions of `count` ranks, `first` among them: each next one shows most that the earlier ones do not, kind by
    kind.

    Among equals, and where nothing is known, ranks spread evenly: every block of ranks one after another that has its
    share in the sample, as hosts, stages and tensor-parallel groups mostly are, is then seen.
    """
    chosen = list(dict.fromkeys(first))
    seen = set().union(*(shown[at] for at in chosen))
    left = [at for at in dict.fromkeys([*spread(len(shown), count), *range(len(shown))]) if at not in chosen]
    while left and len(chosen) < count:
        best = max(left, key=lambda at: news(shown[at], seen))
        chosen.append(best)
        left.remove(best)
        seen |= shown[best]
    return chosen


def news(shown: Traits, seen: set[tuple[str, object]]) -> tuple[int, ...]:
    """Number of not yet seen traits of each kind that a rank shows, in the order of kinds."""
    new = shown - seen
    return tuple(sum(kind == trait[0] for trait in new) for kind in KINDS)


def spread(total: int, count: int) -> list[int]:
    """`count` of `total` positions at even distances, the first and the last among them."""
    if count < 2 or total < 2:
        return [0] if count and total else []
    return sorted({round(at * (total - 1) / (count - 1)) for at in range(min(count, total))})


def traits_of(stated: Stated, world_size: int) -> Traits:
    """Traits of a source's rank, as far as the source states them."""
    traits: set[Trait] = {(HOST, stated.host)} if stated.host else set()
    for group in stated.groups:
        if 1 < len(group.ranks) < world_size or (len(group.ranks) > 1 and _role(group) == "pp"):
            traits |= _of_group(group, stated.rank)
    return frozenset(traits)


def _of_group(group: ProcessGroup, rank: int | None) -> set[Trait]:
    role = _role(group)
    if role == "pp":  # its members hold one stage each, in order
        return {(STAGE, group.ranks.index(rank))} if rank in group.ranks else set()
    return {(TENSOR_GROUP if role == "tp" else GROUP, group.ranks)}


def _role(group: ProcessGroup) -> str | None:
    return role_by_name(group.description) or role_by_name(group.name)


def counts(of_ranks: Sequence[Traits]) -> dict[str, int]:
    """Number of different traits of each kind that ranks show together, without unknown kinds."""
    shown = frozenset().union(*of_ranks)
    by_kind = {kind: sum(trait[0] == kind for trait in shown) for kind in KINDS}
    return {kind: number for kind, number in by_kind.items() if number}


class Wanted(Struct, frozen=True):
    """A parsed `--ranks`: `named` ranks are always read, others until there are `count`; neither for all."""

    text: str = ALL
    named: tuple[int, ...] = ()
    count: int | None = None

    @property
    def is_all(self) -> bool:
        """True where every rank is read."""
        return not self.named and self.count is None

    def and_rank(self, rank: int) -> str:
        """The option's text with one more rank."""
        named = [str(number) for number in (*self.named, rank)]
        return ",".join(named if self.count is None else [f"{_SAMPLE}{self.count + 1}", *named])


def parse_ranks(text: str) -> Wanted:
    """ "all", "0,7", "sample:32" or "sample:32,7" (7 and 31 others). Raises UsageError."""
    if text == ALL:
        return Wanted()
    named, count = [], None
    for part in text.split(","):
        number = part.removeprefix(_SAMPLE)
        if not (number.isascii() and number.isdigit()) or (part != number and (count is not None or not int(number))):
            raise UsageError(f"--ranks {text}: want all, a list like 0,7, sample:32, or sample:32,7")
        if part == number:
            named.append(int(number))
        else:
            count = int(number)
    return Wanted(text, tuple(dict.fromkeys(named)), count)


# Notes of a report on a sample: its coverage, its limits, and the rank to read next.

# Waits for ranks that were not read: the excess of collectives over those of groups that made the same call.


def unread_wait_ns(job: JobFacts) -> Array:
    """Excess of each group's collectives, on the member that waits least, over those of the fastest group that made the
    same call; float64, shape (groups,). Groups of which all were read count 0."""
    instances, members = job.instances, job.members
    shortest = np.full(len(instances), np.iinfo(np.int64).max)
    np.minimum.at(shortest, members["instance"], members["end_ns"] - members["start_ns"])
    excess = np.zeros(len(job.groups))
    rows = np.flatnonzero(~instances["is_message"] & (instances["members"] > 0))
    if not len(rows):
        return excess
    size = job.groups["size"][instances["group"][rows]]
    _, kind = distinct(instances["op"][rows], instances["size_bytes"][rows], size)
    group = instances["group"][rows]
    usual: dict[int, dict[int, float]] = {}
    for k in np.unique(kind).tolist():
        of_kind = kind == k
        here = group[of_kind]
        usual[k] = {g: float(np.median(shortest[rows][of_kind][here == g])) for g in np.unique(here).tolist()}
    fastest = np.array([min(usual[k].values()) for k in kind.tolist()])
    over = shortest[rows] - fastest
    unseen = (shortest[rows] > UNSEEN_FACTOR * fastest) & ~instances["complete"][rows]
    np.add.at(excess, group[unseen], over[unseen])
    return excess


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

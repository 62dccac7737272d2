"""Choice of a sample of ranks: few, but showing every pipeline stage, host and tensor-parallel group where possible."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ddprof.analyzers.job.groups.groups import role_by_name
from ddprof.errors import NoUsableInput, UsageError
from ddprof.model import ProcessGroup
from ddprof.readers import Source
from ddprof.readers.admission.stated import Stated, stated_by

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

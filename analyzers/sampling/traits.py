"""What one rank shows of a job: a stage of its pipeline, a host, each of its groups. A sample should show them all."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.analyzers.job.groups.groups import role_by_name
from ddprof.model import ProcessGroup
from ddprof.readers.admission.stated import Stated

STAGE, HOST, TENSOR_GROUP, GROUP = "pipeline stage", "host", "tensor-parallel group", "other process group"
KINDS = (STAGE, HOST, TENSOR_GROUP, GROUP)  # in the order in which a small sample shows them

Trait = tuple[str, object]  # kind, which one
Traits = frozenset[Trait]


def traits_of(stated: Stated, world_size: int) -> Traits:
    """What the rank of a source shows, as far as the source says."""
    found: set[Trait] = {(HOST, stated.host)} if stated.host else set()
    for group in stated.groups:
        if 1 < len(group.ranks) < world_size or (len(group.ranks) > 1 and _role(group) == "pp"):
            found |= _of_group(group, stated.rank)
    return frozenset(found)


def _of_group(group: ProcessGroup, rank: int | None) -> set[Trait]:
    role = _role(group)
    if role == "pp":  # its members hold one stage each, in order
        return {(STAGE, group.ranks.index(rank))} if rank in group.ranks else set()
    return {(TENSOR_GROUP if role == "tp" else GROUP, group.ranks)}


def _role(group: ProcessGroup) -> str | None:
    return role_by_name(group.description) or role_by_name(group.name)


def counts(of_ranks: Sequence[Traits]) -> dict[str, int]:
    """How many different traits of each kind ranks show together; kinds of which none is known are left out."""
    shown = frozenset().union(*of_ranks)
    by_kind = {kind: sum(trait[0] == kind for trait in shown) for kind in KINDS}
    return {kind: number for kind, number in by_kind.items() if number}

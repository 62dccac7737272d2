"""Parts of one job: folders written by its nodes are joined where they fit one job only.

A part lacks ranks of the world that it states. Parts are of one job where they state one world size, no rank twice, no
two jobs by their launcher's name, and began at one time. Once they are read their content must agree, too (`jobs`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ddprof.model import HealthNote
from ddprof.readers.admission.jobs import NODES_JOIN_S
from ddprof.readers.admission.runs import Run, run_folder
from ddprof.readers.admission.stated import stated_by
from ddprof.readers.files.remote import is_url
from ddprof.readers.side_files.manifests import PartOfJob, part_of_job

_NAMED = 3  # labels in one name


class _Part(Struct, frozen=True):
    at: int  # which of the runs
    run: Run
    ranks: frozenset[int]
    world_size: int
    stated: PartOfJob

    @property
    def name(self) -> str:
        """The folder's name."""
        folder = run_folder(self.run[1][0])
        return os.path.basename(folder if is_url(folder) else os.path.realpath(folder))  # `latest` is a link

    def may_join(self, other: _Part) -> bool:
        """True where nothing that both state separates their jobs."""
        jobs, one, two = {self.stated.job, other.stated.job} - {""}, self.stated.started_ns, other.stated.started_ns
        apart_ns = 0 if one is None or two is None else abs(one - two)
        return self.world_size == other.world_size and len(jobs) < 2 and apart_ns <= NODES_JOIN_S * 1e9


def together(runs: Sequence[Run]) -> tuple[list[Run], list[HealthNote]]:
    """The runs, with parts of one job joined as one run named after its parts, and notes on what was joined or not."""
    parts = [_part(at, run) for at, run in enumerate(runs)] if len(runs) > 1 else []
    notes: list[HealthNote] = []
    joined: dict[int, Run] = {}
    gone: set[int] = set()
    for group in _groups([part for part in parts if part is not None]):
        ranks = [rank for part in group for rank in part.ranks]
        names = list(dict.fromkeys(part.name for part in group))
        shown = " + ".join(names[:_NAMED]) + (" + ..." if len(names) > _NAMED else "")
        if len(set(ranks)) < len(ranks):
            issue = f"{len(group)} folders may be parts of more than one job of {group[0].world_size} ranks: {shown}"
            notes.append(HealthNote(issue, "each is analyzed alone; give the folders of one job together", "info"))
            continue
        issue = f"the ranks of {len(group)} folders are one job of {group[0].world_size}: {shown}"
        notes.append(HealthNote(issue, "analyzed as one run", "info", where=group[0].run[1][0].path))
        joined[group[0].at] = shown, tuple(source for part in group for source in part.run[1])
        gone |= {part.at for part in group[1:]}
    return [joined.get(at, run) for at, run in enumerate(runs) if at not in gone], notes


def _groups(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Groups of two or more parts that may be of one job."""
    groups: list[list[_Part]] = []
    for part in parts:
        near = next((group for group in groups if all(part.may_join(other) for other in group)), None)
        if near is None:
            groups.append([part])
        else:
            near.append(part)
    return (group for group in groups if len(group) > 1)


def _part(at: int, run: Run) -> _Part | None:
    """The job and ranks that a run states to be a part of; None where it is whole or states none."""
    manifests = sorted({path for source in run[1] for path in source.manifest_paths})
    stated = part_of_job(manifests)
    ranks, world_size = frozenset(stated.ranks), stated.world_size
    if not world_size:
        heads = stated_by(run[1])
        ranks = frozenset(head.rank for head in heads if head.rank is not None)
        sizes = {head.world_size for head in heads}
        world_size = sizes.pop() if len(sizes) == 1 else None
    if not world_size or not ranks or len(ranks) >= world_size:
        return None
    return _Part(at, run, ranks, world_size, stated)

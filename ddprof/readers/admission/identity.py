"""Ranks of a run's files.

Decided over all files together, from the strongest evidence to the weakest; duplicates are resolved and noted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from ddprof.model import HealthNote, Identity
from ddprof.readers.files.names import file_name, is_numbered, rank_in_name
from ddprof.units import format_ranks

_TRUST = {"distributedInfo": 0, "sidecar": 1, "file name": 2, "content": 3, "order": 4}


def resolve_identities(identities: Sequence[Identity], paths: Sequence[str]) -> tuple[list[Identity], list[HealthNote]]:
    """The identities of one run in the given order with every rank decided, and notes on the assumptions.

    Ranks come from distributedInfo, else the sidecar, else the file name, else the content, else the order of the
    files. A bare number in the name of the only file is no rank: it may count steps. Of two files that claim one rank,
    the one with more evidence keeps it; the other gets the rank of its device index, its name, or the one vacant slot.
    Where none fits, its rank is None and its source "duplicate": leave it out. Notes report each case.
    """
    result = list(identities)
    if len(result) == 1 and result[0].source == "file name" and result[0].world_size is None and is_numbered(paths[0]):
        result = [replace(result[0], rank=None, source="order")]
    notes = _swapped_notes(result, paths)
    notes += _settle_duplicates(result, paths)
    notes += _fill_missing(result, paths)
    return result, notes


def _swapped_notes(result: Sequence[Identity], paths: Sequence[str]) -> list[HealthNote]:
    """Notes on files whose names and contents state the same ranks in another order, so that files were renamed."""
    named, held = [rank_in_name(path) for path in paths], [identity.rank for identity in result]
    odd = [at for at, rank in enumerate(named) if rank != held[at]]
    if not odd or None in named or len(set(named)) < len(named) or Counter(named) != Counter(held):
        return []
    issue = f"{len(odd)} file names contradict the ranks that the files state: {file_name(paths[odd[0]])} is of rank"
    return [HealthNote(f"{issue} {held[odd[0]]}", "the stated ranks are used")]


def _settle_duplicates(result: list[Identity], paths: Sequence[str]) -> list[HealthNote]:
    notes = []
    holders: dict[int, list[int]] = defaultdict(list)
    for at, identity in enumerate(result):
        if identity.rank is not None:
            holders[identity.rank].append(at)
    taken, world = set(holders), _world_size(result)
    for rank, claims in sorted(holders.items()):
        if len(claims) < 2:
            continue
        claims.sort(key=lambda at: _doubt(result[at], paths[at], rank))
        processes = Counter(_process(result[at]) for at in claims)  # of those that have the rank still
        for at in claims[1:]:
            processes[_process(result[at])] -= 1
            is_same_process = result[at].pid is not None and processes[_process(result[at])] > 0
            new, why = _other_rank(result[at], paths[at], taken, world, is_same_process)
            notes.append(_duplicate_note(paths[at], rank, new, why))
            result[at] = replace(result[at], rank=new, source="content" if new is not None else "duplicate")
            if new is not None:
                taken.add(new)
    return notes


def _process(identity: Identity) -> tuple[int | None, str | None]:
    return identity.pid, identity.host


def _doubt(identity: Identity, path: str, rank: int) -> tuple[int, int, int]:
    """Sort key, lower is more credible: evidence against the claimed rank, then the source of the claim."""
    named = rank_in_name(path)
    against_name = int(named is not None and named != rank)
    local = identity.local_device
    against_device = int(local is not None and local != rank and local != rank % 8)
    return against_device, against_name, _TRUST.get(identity.source, 5)


def _other_rank(
    identity: Identity, path: str, taken: set[int], world: int | None, is_same_process: bool
) -> tuple[int | None, str]:
    """The true rank of a wrongly labelled file: by device index, by name, or the only vacant one.

    `is_same_process`: the one that has the rank it claims wrote it, too.
    """
    local, named = identity.local_device, rank_in_name(path)
    if local is not None and local not in taken and (world is None or local < world):
        return local, f"its kernels ran on device {local}"
    if named is not None and named not in taken and (world is None or named < world):
        return named, f"its name says {named}"
    if world is not None and not is_same_process and world - sum(rank < world for rank in taken) == 1:
        vacant = next(rank for rank in range(world) if rank not in taken)
        return vacant, f"it is the only rank missing of {world}"
    return None, "it may be another window of the same rank"


def _duplicate_note(path: str, rank: int, new: int | None, why: str) -> HealthNote:
    issue = f"{file_name(path)} claims rank {rank}, which another file has with better evidence"
    if new is None:
        return HealthNote(issue, f"{why}: left out", "warning", rank)
    return HealthNote(issue, f"taken as rank {new}: {why}", "warning", new)


def _fill_missing(result: list[Identity], paths: Sequence[str]) -> list[HealthNote]:
    """Ranks for files without a stated one: by pid where all have one, else by the order of their names."""
    unknown = [at for at, identity in enumerate(result) if identity.rank is None and identity.source != "duplicate"]
    if not unknown:
        return []
    by_pid = len(unknown) > 1 and all(result[at].pid is not None for at in unknown)
    by_pid = by_pid and len({result[at].pid for at in unknown}) == len(unknown)
    unknown.sort(key=lambda at: ((result[at].pid or 0) if by_pid else 0, _counted(paths[at])))
    taken = {i.rank for i in result if i.rank is not None}
    free, world = (rank for rank in count() if rank not in taken), _world_size(result)
    notes = []
    for at in list(unknown):
        rank = next(free)
        if world is not None and rank >= world:
            issue = f"{file_name(paths[at])} does not state its rank, and all {world} ranks have a file"
            notes.append(HealthNote(issue, "left out"))
            result[at] = replace(result[at], source="duplicate")
            unknown.remove(at)
            continue
        result[at] = replace(result[at], rank=rank, source="content" if by_pid else "order")
    if not unknown:
        return notes
    ranks = tuple(r for at in unknown if (r := result[at].rank) is not None)
    how = "the order of their process ids" if by_pid else "the order of their names"
    if len(result) == 1:
        return [HealthNote(f"{file_name(paths[0])} does not state its rank", "taken as rank 0", "info", 0)]
    of = "files" if len({paths[at].partition(" [")[0] for at in unknown}) == len(unknown) else "parts of files"
    notes.append(HealthNote(f"{len(unknown)} {of} do not state their rank", f"{format_ranks(ranks)} given by {how}"))
    return notes


def _counted(path: str) -> list[tuple[str, int, str]]:
    """A sort key by which worker-2 precedes worker-10: where each host runs one process, all may have one pid."""
    parts = ((text, digits.lstrip("0")) for text, digits in re.findall(r"(\D*)(\d*)", path))
    return [(text, len(number), number) for text, number in parts]


def _world_size(result: Sequence[Identity]) -> int | None:
    sizes = Counter(i.world_size for i in result if i.world_size)
    return sizes.most_common(1)[0][0] if sizes else None

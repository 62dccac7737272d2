"""Jobs among files: files are one job only on evidence, all others are separate runs.

Files that lie in one folder may be ranks of one job, one script run twice, or have nothing to do with one another.
They are put together on positive evidence only:

- they state ranks of one job (distributedInfo, or the sidecar of a run folder) of one world size;
- they hold the same collectives: same process group, sequence number, operation and bytes;
- they communicate in one process group, or their names number ranks, and their windows overlap.

Files that contradict one another are never put together: other world sizes, other collectives under one number, no
collective in common though both called some of one group at one time, or no group in common though both are members of
one that the other used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from ddprof.model import HealthNote, Identity
from ddprof.readers.files.names import file_name, rank_in_name

_DIGITS = re.compile(r"\d+")
SPOKESMEN = 16  # recordings of a job that speak for it: 4,096 ranks are not compared in pairs
# torchrun waits so long for its nodes (`join_timeout` of torch/distributed/elastic/rendezvous): all begin within it.
NODES_JOIN_S = 600
_DIFFERENT = 0.5  # of the collectives that two files number alike: ranks of one job call the same one in all of them
CollectiveKey = tuple[str, int]  # process group (its members, or its name where these are unknown), sequence number
CollectiveCall = tuple[str, int | None]  # operation, bytes where they must be equal on all members


@dataclass(frozen=True)
class Recording:
    """One rank's file.

    `window_ns`: first and last instant, unix time; None where its times are not unix time. `communications`: how many
    collectives and messages were recorded, `numbered` the collectives with a sequence number, `sequences` the first and
    last of these numbers in each process group, `groups` the process groups with more than one rank, as (name, size),
    `group_ranks` their members where stated; `folder`: that of the run as it lies.
    """

    identity: Identity
    path: str
    window_ns: tuple[int, int] | None = None
    communications: int = 0
    numbered: Mapping[CollectiveKey, CollectiveCall] = field(default_factory=dict)
    sequences: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    groups: frozenset[tuple[str, int]] = frozenset()
    group_ranks: frozenset[frozenset[int]] = frozenset()
    folder: str = ""

    @property
    def states_rank(self) -> bool:
        """True where the file, or its sidecar, states its rank and job."""
        return self.identity.source in ("distributedInfo", "sidecar") and self.identity.rank is not None

    def overlap_ns(self, other: Recording) -> int | None:
        """Time in which both were recorded, negative: between them; None where their times are not comparable."""
        if self.window_ns is None or other.window_ns is None:
            return None
        return min(self.window_ns[1], other.window_ns[1]) - max(self.window_ns[0], other.window_ns[0])

    @property
    def length_ns(self) -> int:
        """Length of the window; 0 where its times are not unix time."""
        return self.window_ns[1] - self.window_ns[0] if self.window_ns else 0


def split_jobs(recordings: Sequence[Recording]) -> list[list[int]]:
    """Positions of the recordings of each job, both in the given order.

    Recordings of one time are put together first, then those whose clocks are off: never two that state one rank.
    """
    jobs = [[at] for at in range(len(recordings))]
    for at_one_time in (True, False):
        jobs = _merged(jobs, recordings, at_one_time)
    return sorted(jobs)


def _marks(recording: Recording) -> frozenset[object]:
    """Marks of which all recordings of one job share at least one with another."""
    sizes = {recording.identity.world_size} if recording.states_rank else set()
    names = set() if rank_in_name(file_name(recording.path)) is None else {_pattern(recording)}
    groups = {key[0] for key in recording.numbered}
    return frozenset().union(sizes, names, ((group,) for group in groups), recording.groups, recording.group_ranks)


def admission_notes(jobs: Sequence[Sequence[int]], recordings: Sequence[Recording]) -> list[HealthNote]:
    """One note, for all runs, where the files of one folder make several runs; else none."""
    if len(jobs) < 2:
        return []
    worlds = sorted({w for r in recordings if (w := r.identity.world_size)})
    if len(worlds) > 1:
        why = f"they state different world sizes ({', '.join(map(str, worlds))})"
    else:
        why = "no stated rank, process group or collective connects them"
        pairs = (pair for one, other in combinations(jobs, 2) for pair in product(one, other))
        apart = not any(_may_overlap(recordings[a], recordings[b]) for a, b in pairs)
        why += ", and they were recorded at different times" if apart else ""
    issue = f"the {len(recordings)} files of this folder are not of one job: {why}"
    effect = f"analyzed as {len(jobs)} separate runs; `ddprof compare A B` compares two"
    return [HealthNote(issue, effect)]


def _merged(jobs: list[list[int]], recordings: Sequence[Recording], at_one_time: bool) -> list[list[int]]:
    """Jobs joined where a recording of one belongs to a recording of the other and no recording contradicts."""
    merged: list[tuple[list[int], frozenset[object]]] = []
    for job in jobs:
        joined, marks = list(job), frozenset[object]().union(*(_marks(recordings[at]) for at in job))
        apart = []
        for other, of_other in merged:
            if not marks.isdisjoint(of_other) and _are_one(other, joined, recordings, at_one_time):
                joined, marks = sorted(other + joined), marks | of_other
            else:
                apart.append((other, of_other))
        merged = [*apart, (joined, marks)]
    return [job for job, _ in merged]


def _are_one(one: Sequence[int], other: Sequence[int], recordings: Sequence[Recording], at_one_time: bool) -> bool:
    pairs = [(recordings[a], recordings[b]) for a in _spokesmen(one) for b in _spokesmen(other)]
    if any(_contradict(a, b) for a, b in pairs):
        return False
    if at_one_time:
        return any(_belong(a, b) for a, b in pairs if _may_overlap(a, b))
    same_rank = any(a.identity.rank is not None and a.identity.rank == b.identity.rank for a, b in pairs)
    return not same_rank and any(_belong_by_content(a, b) for a, b in pairs)


def _pattern(recording: Recording) -> str:
    return _DIGITS.sub("#", file_name(recording.path))


def _may_overlap(a: Recording, b: Recording) -> bool:
    """True where both were recorded at the same time, or their times are not comparable."""
    overlap_ns = a.overlap_ns(b)
    return overlap_ns is None or overlap_ns > 0


def _spokesmen(job: Sequence[int]) -> Sequence[int]:
    """Recordings spread evenly over a job, its first one included."""
    return job[:: -(-len(job) // SPOKESMEN)]


def _contradict(a: Recording, b: Recording) -> bool:
    worlds = {r.identity.world_size for r in (a, b) if r.identity.world_size}
    shared = a.numbered.keys() & b.numbered.keys()
    different = 0 if a.numbered == b.numbered else sum(_differ(a.numbered[key], b.numbered[key]) for key in shared)
    return (
        len(worlds) > 1
        or different > _DIFFERENT * max(1, len(shared))
        or _met_never(a, b)
        or _members_without_a_group(a, b)
        or (a.folder != b.folder and (a.overlap_ns(b) or 0) < -NODES_JOIN_S * 1e9)  # no node waits so long for another
    )


def _met_never(a: Recording, b: Recording) -> bool:
    """True where both called collectives of the same groups at the same time (most of the shorter recording), but none
    in common.
    """
    groups, both_ns = a.sequences.keys() & b.sequences.keys(), a.overlap_ns(b)
    pairs = [(a.sequences[group], b.sequences[group]) for group in groups]
    is_one_time = both_ns is not None and 2 * both_ns > min(a.length_ns, b.length_ns)
    return bool(pairs) and is_one_time and all(max(x[0], y[0]) > min(x[1], y[1]) for x, y in pairs)


def _members_without_a_group(a: Recording, b: Recording) -> bool:
    """True where both files know their groups' members and put both ranks into one group, but share no group."""
    ranks = {a.identity.rank, b.identity.rank}
    if None in ranks or not (a.group_ranks and b.group_ranks) or a.group_ranks == b.group_ranks:
        return False
    of_both = [{group for group in r.group_ranks if ranks <= group} for r in (a, b)]
    return bool(of_both[0] | of_both[1]) and not of_both[0] & of_both[1]


def _differ(one: CollectiveCall, other: CollectiveCall) -> bool:
    return one[0] != other[0] or (one[1] != other[1] and None not in (one[1], other[1]))


def _belong(a: Recording, b: Recording) -> bool:
    """True with positive evidence that two recordings of one time, or of unknown times, are of one job. One is a common
    process group: the same members, or where these are unknown the same name and size.
    """
    in_one_group = a.communications and b.communications and (a.group_ranks & b.group_ranks or a.groups & b.groups)
    return _belong_by_content(a, b) or bool(in_one_group) or _are_numbered(a, b)


def _belong_by_content(a: Recording, b: Recording) -> bool:
    """Evidence without a clock: both state a rank of a job of one size, or hold the same collectives."""
    stated = a.states_rank and b.states_rank and a.identity.world_size == b.identity.world_size
    return bool(stated and a.identity.world_size != 1) or bool(a.numbered.keys() & b.numbered.keys())


def _are_numbered(a: Recording, b: Recording) -> bool:
    """True where names differ only in the rank, and both files, or their world sizes, have peers."""
    names = [file_name(r.path) for r in (a, b)]
    numbers = [rank_in_name(name) for name in names]
    if None in numbers or numbers[0] == numbers[1]:
        return False
    has_peers = all(r.communications > 0 or (r.identity.world_size or 1) > 1 for r in (a, b))
    return _pattern(a) == _pattern(b) and has_peers

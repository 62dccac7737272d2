"""Process groups of the job: one identity for all ranks, and the parallelism each serves."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING, Phase, RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS, OP_CODE, PIPELINE_GROUP, POINT_TO_POINT
from ddprof.analyzers.facts.work import Moment, issued_ns, moments_of, passes_of
from ddprof.analyzers.job.channels import nameless_groups
from ddprof.analyzers.job.model import GROUPS, UNKNOWN_ROLE
from ddprof.model import ProcessGroup
from ddprof.tables import NULL, Array, Table

GroupKey = tuple[tuple[int, ...], str]
_MembersOf = Callable[[ProcessGroup], tuple[int, ...]]

ACTIVATIONS = 0.25  # of the summed bytes of a group; with tensor parallel layers about half are in forward passes
MOST_GATHERS = 0.5  # of a group's all-gathers: their usual place in the step tells what they gather
SUMS = tuple(OP_CODE[name] for name in ("all_reduce", "reduce_scatter"))

_ROLE_BY_NAME = (
    ("pp", PIPELINE_GROUP),
    ("tp", re.compile(r"(^|[_\W])(tp|tensor)([_\W\d]|$)|tensor_(model_)?parallel|TENSOR_MODEL", re.I)),
    ("ep", re.compile(r"(^|[_\W])(ep|expert)([_\W\d]|$)|EXPERT", re.I)),
    ("cp", re.compile(r"(^|[_\W])(cp|sp|context|sequence)([_\W\d]|$)|CONTEXT_PARALLEL", re.I)),
    ("replicate", re.compile(r"replicate", re.I)),
    ("fsdp_shard", re.compile(r"shard|fsdp", re.I)),
    ("dp", re.compile(r"(^|[_\W])(dp|data|ddp)([_\W\d]|$)|data_parallel|DATA_PARALLEL", re.I)),
)


def world_size_of(ranks: Sequence[RankFacts]) -> int:
    """Number of ranks of the job, read or not: as any of these states, or as their numbers and groups show.

    The number of a lone file is no evidence of other ranks.
    """
    stated = [f.identity.world_size for f in ranks if f.identity.world_size]
    stated += [group.size for f in ranks for group in f.process_groups if group.size and len(ranks) > 1]
    numbers = [f.identity.rank for f in ranks if f.identity.rank is not None]
    return max([*stated, max(numbers, default=0) + 1 if len(ranks) > 1 else 1])


def group_keys(ranks: Sequence[RankFacts]) -> list[list[GroupKey]]:
    """Job-wide keys of each rank's process groups, by the rank's own group index.

    Members identify a group; several groups over the same members differ by name if all ranks agree on it.
    """
    members_of = _members_of(ranks)
    alike = {id(f.process_groups): f.process_groups for f in ranks}  # ranks of the same groups hold one tuple of them
    times = Counter(id(f.process_groups) for f in ranks)
    names: dict[tuple[int, ...], Counter[str]] = defaultdict(Counter)
    for which, groups in alike.items():
        for group in groups:
            names[group.ranks or ()][group.name] += times[which]
    keys = {which: _keys_of(groups, names, members_of) for which, groups in alike.items()}
    return [keys[id(f.process_groups)] for f in ranks]


def _keys_of(
    groups: Sequence[ProcessGroup], names: Mapping[tuple[int, ...], Counter[str]], members_of: _MembersOf
) -> list[GroupKey]:
    keys: list[GroupKey] = []
    position: Counter[tuple[int, ...]] = Counter()
    for group in groups:
        members = members_of(group)
        if not group.ranks:
            keys.append((members, group.name))
            continue
        shared = names[group.ranks][group.name] > 1 or len(members) == 1
        keys.append((members, group.name if shared else f"#{position[members]}"))
        position[members] += 1
    return keys


def _members_of(ranks: Sequence[RankFacts]) -> _MembersOf:
    """Function from a group to the rank numbers of its members, sorted.

    Long lists are abbreviated: a group as large as the world is of all its ranks, read or not, and the members of any
    other are (), unknown. A group that states neither list nor size is taken to be of the ranks read.
    """
    everyone, world = _numbers_read(ranks), tuple(range(world_size_of(ranks)))

    def members_of(group: ProcessGroup) -> tuple[int, ...]:
        if group.ranks:
            return tuple(sorted(group.ranks))
        if group.size is None:
            return everyone
        return world if group.size == len(world) else ()

    return members_of


def _numbers_read(ranks: Sequence[RankFacts]) -> tuple[int, ...]:
    return tuple(sorted(f.identity.rank for f in ranks if f.identity.rank is not None))


def comm_group_ids(ranks: Sequence[RankFacts]) -> tuple[list[np.ndarray], list[GroupKey]]:
    """Job-wide group ids of each rank's rows of its comms table (shape (rows,)), and the key of each id.

    A communication without a named group counts as the world's (old traces carry no arguments).
    """
    keys = group_keys(ranks)
    everyone: GroupKey = (_numbers_read(ranks), "world")
    ids: dict[GroupKey, int] = {}
    id_of: dict[tuple[int, int], int] = {}  # by the list of keys, which ranks of the same groups share, and the group
    inferred = nameless_groups(ranks)
    result = []
    for position, (facts, of_rank) in enumerate(zip(ranks, keys, strict=True)):
        column = facts.comms["group"]
        mapped = np.empty(len(column), np.int64)
        for group in np.unique(column):
            of_group = column == group
            if group == NO_STRING or group >= len(of_rank):
                mapped[of_group] = _nameless(position, facts, np.flatnonzero(of_group), inferred, everyone, ids)
            else:
                which = id(of_rank), int(group)
                if which not in id_of:
                    id_of[which] = ids.setdefault(of_rank[int(group)], len(ids))
                mapped[of_group] = id_of[which]
        result.append(mapped)
    return result, list(ids)


def _nameless(
    position: int,
    facts: RankFacts,
    rows: np.ndarray,
    inferred: Mapping[tuple[int, int], tuple[int, ...]],
    everyone: GroupKey,
    ids: dict[GroupKey, int],
) -> np.ndarray:
    """Group ids of communications without a named group: their channel where it was inferred, else the world."""
    mapped = np.empty(len(rows), np.int64)
    tracks = facts.comms["track"][rows]
    for track in np.unique(tracks):
        members = inferred.get((position, int(track)))
        key = everyone if members is None else (members, f"channel {len(members)}")
        mapped[tracks == track] = ids.setdefault(key, len(ids))
    return mapped


def group_sizes(keys: Sequence[GroupKey], ranks: Sequence[RankFacts]) -> np.ndarray:
    """Number of members of each group, shape (keys,): of its list of ranks, else as a rank states, else 0."""
    alike = {id(f.process_groups): f.process_groups for f in ranks}
    stated = {g.name: g.size or 0 for groups in alike.values() for g in groups if not g.ranks}
    return np.array([len(members) or stated.get(name, 0) for members, name in keys], np.int64)


def groups_table(
    keys: Sequence[GroupKey],
    ranks: Sequence[RankFacts],
    ids: Sequence[np.ndarray],
    world_size: int,
    has_stages: bool = True,
) -> Table:
    """GROUPS, one row per id, with the role from the group's name, else from its use. `has_stages`: False where the
    messages of all ranks are known to be no pipeline's.
    """
    used: dict[int, Counter[str]] = defaultdict(Counter)
    calls = [column * len(COLLECTIVE_OPS) + facts.comms["op"] for facts, column in zip(ranks, ids, strict=True)]
    kinds, counts = np.unique(np.concatenate(calls), return_counts=True)
    for kind, times in zip(kinds.tolist(), counts.tolist(), strict=True):
        group, op = divmod(kind, len(COLLECTIVE_OPS))
        used[group]["send_recv" if op in POINT_TO_POINT else COLLECTIVE_OPS[op]] += times
    alike = {id(f.process_groups): f.process_groups for f in reversed(ranks)}  # the last rank's word counts
    members_of = _members_of(ranks)
    described = {(members_of(g), g.name): g.description for groups in reversed(alike.values()) for g in groups}
    # Parameters are gathered and gradients scattered where something is trained. Without a sign of training the same
    # calls may serve any parallelism: then only the size of the group is known.
    trains = any(
        "Optimizer" in s or "FSDP" in s or "FullySharded" in s or "Backward" in s for f in ranks[:1] for s in f.strings
    )
    sizes = group_sizes(keys, ranks).tolist()
    named = [role_by_name(described.get(key, "")) or role_by_name(key[1]) for key in keys]
    sums = in_steps = np.zeros(len(keys), bool)
    if trains and not all(named):
        sums, in_steps = _sums_activations(ranks, ids, len(keys)), _sums_in_steps(ranks, ids, len(keys))
    roles = [
        name or _role(used[i], size, world_size, trains, bool(sums[i]), bool(in_steps[i]), has_stages)
        for i, (name, size) in enumerate(zip(named, sizes, strict=True))
    ]
    return GROUPS.table(
        {
            "size": sizes,
            "ranks": [",".join(map(str, members)) for members, _ in keys],
            "role": roles,
            "name": [name for _, name in keys],
        }
    )


def global_peers(peer: Array, group: Array, keys: Sequence[GroupKey], me: int) -> Array:
    """Global rank numbers of the other ends of a rank's messages; `group`: the job-wide group id of each.

    Traces number them globally or within the group, as the group's members and this rank, `me`, show.
    """
    result = peer.copy()
    for g in np.unique(group):
        members = keys[int(g)][0]
        of_group = group == g
        values = np.unique(peer[of_group][peer[of_group] != NULL])
        is_global = bool(np.all(np.isin(values, members))) and me not in values.tolist()
        is_relative = bool(len(values)) and values.max() < len(members) and all(members[int(v)] != me for v in values)
        if not is_global and is_relative:
            result[of_group] = np.array([members[int(v)] if v != NULL else NULL for v in peer[of_group]], np.int64)
    return result


def role_by_name(text: str) -> str | None:
    """The parallelism that a group's name or description states; None where there is none."""
    return next((role for role, pattern in _ROLE_BY_NAME if pattern.search(text)), None)


def _sums_activations(ranks: Sequence[RankFacts], ids: Sequence[np.ndarray], groups: int) -> Array:
    """True for each group a good part of whose bytes are summed in forward passes: gradients are in backward passes.

    Sums of statistics (SyncBatchNorm) and losses in a forward pass are few bytes beside the gradients. Ranks without a
    known backward pass say nothing.
    """
    in_forward, everywhere = np.zeros(groups), np.zeros(groups)
    for facts, column in zip(ranks, ids, strict=True):
        comms = facts.comms
        is_sum = np.isin(comms["op"], SUMS)
        summed = np.where(is_sum & (comms["size_bytes"] != NULL), comms["size_bytes"], 0)
        passes = [facts.phase_time(phase) for phase in (Phase.FORWARD, Phase.BACKWARD)]
        if not all(len(times[0]) for times in passes):
            continue
        forward, backward = (intervals.contains(times, issued_ns(comms)) for times in passes)
        everywhere += np.bincount(column, weights=summed, minlength=groups)
        in_forward += np.bincount(column, weights=summed * (forward & ~backward), minlength=groups)
    return in_forward > ACTIVATIONS * everywhere


def _sums_in_steps(ranks: Sequence[RankFacts], ids: Sequence[np.ndarray], groups: int) -> Array:
    """True for each group most of whose all-gathers come between the backward pass and the optimizer: what they gather
    are summed gradients, as of an all-reduce in steps (inside the host, across hosts), and no parameters.
    """
    between, everywhere = np.zeros(groups), np.zeros(groups)
    for facts, column in zip(ranks, ids, strict=True):
        gathers = facts.comms["op"] == OP_CODE["all_gather"]
        if not all(len(passes_of(facts, phase)[0]) for phase in Phase):
            continue
        is_free = moments_of(facts, issued_ns(facts.comms)[gathers]) == Moment.BEFORE_OPTIMIZER
        everywhere += np.bincount(column[gathers], minlength=groups)
        between += np.bincount(column[gathers][is_free], minlength=groups)
    return between > MOST_GATHERS * everywhere


def _role(
    used: Counter[str],
    size: int,
    world_size: int,
    trains: bool,
    sums_activations: bool,
    sums_in_steps: bool,
    has_stages: bool,
) -> str:
    """The parallelism of a group by its use."""
    if used["send_recv"] and used["send_recv"] >= sum(used.values()) / 2:
        return "pp" if has_stages else ""
    if sums_activations:
        return "tp"
    if used["all_gather"] and used["reduce_scatter"] and trains and not sums_in_steps:
        return "fsdp_shard"
    if used["all_to_all"] > used["all_reduce"]:
        return "ep"
    if not trains:
        return f"{UNKNOWN_ROLE} {size}" if used else ""
    return "dp" if size == world_size else ""

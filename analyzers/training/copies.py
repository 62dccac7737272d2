"""Copies of one model on several ranks: the ranks that should hold the same, what differs, and its names in remarks.

Ranks of one DistributedDataParallel model are meant to; of a model without a wrapper they are where every gradient is
summed over all ranks in every step. Nothing else is compared: ensembles, stages and shards differ by design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from ddprof.analyzers.facts.names import COLLECTIVE_OPS, OP_CODE
from ddprof.analyzers.job.model import JobFacts
from ddprof.findings import Evidence
from ddprof.sidecar import Sidecar
from ddprof.sidecar.training import CodeLine, ReplicaState, ReplicatedModel

DDP, MODULE = "ddp", "module"
_MOVES_STATE = ("all_to_all", "all_gather", "reduce_scatter", "send", "recv", "send_recv", "gather", "scatter")


class Copies(Struct, frozen=True):
    """One model on several ranks after the same step, by rank number, with the tensors in the same order."""

    step: int
    models: Mapping[int, ReplicatedModel]
    rates: Mapping[int, tuple[float | None, ...]]  # learning rates of each rank

    @property
    def one(self) -> ReplicatedModel:
        """The copy of the lowest rank."""
        return self.models[min(self.models)]

    def differing(self, buffers: bool) -> list[int]:
        """Places of the parameters, or of the buffers, whose checksums are not the same on all ranks."""
        among = set(self.one.buffers)
        sums = [model.sums for model in self.models.values()]
        return [at for at, of in enumerate(zip(*sums, strict=True)) if len(set(of)) > 1 and (at in among) is buffers]

    def odd_ranks(self, places: list[int]) -> tuple[int, ...]:
        """The ranks that differ from the state of the majority; () without a majority."""
        states = {rank: tuple(model.sums[at] for at in places) for rank, model in self.models.items()}
        common, count = Counter(states.values()).most_common(1)[0]
        return tuple(r for r, state in sorted(states.items()) if state != common) if 2 * count > len(states) else ()

    def distance(self, places: list[int]) -> float | None:
        """The largest relative difference between the first numbers of these tensors; None where they do not differ."""
        distances = []
        for at in places:
            values = [model.values[at] for model in self.models.values() if at < len(model.values)]
            present = [value for value in values if value is not None]
            if len(present) == len(self.models) and max(present) > min(present):
                distances.append((max(present) - min(present)) / max(map(abs, present)))
        return max(distances, default=None)


def copies(job: JobFacts, kind: str, buffers: bool = False) -> Iterator[Copies]:
    """Models of one kind that more than one rank held after the same step, with the same tensors: as of the first time
    at which parameters, or buffers, differ, else as of the last. Without a wrapper as of the trace window, which shows
    what ranks sum.
    """
    chosen: dict[tuple[object, ...], Copies] = {}
    window, later = [f.sidecar.replicas for f in job.ranks], [f.sidecar.later_replicas for f in job.ranks]
    for states in (window, later) if kind == DDP else (window,):
        for model, held in _held(dict(zip(job.rank_ids, states, strict=True)), kind):
            if model not in chosen or not chosen[model].differing(buffers):
                chosen[model] = held
    yield from chosen.values()


def _held(states: Mapping[int, ReplicaState | None], kind: str) -> Iterator[tuple[tuple[object, ...], Copies]]:
    """Each model with its copies. `states`: by rank number."""
    seen: dict[tuple[object, ...], dict[int, ReplicatedModel]] = {}
    for rank, state in states.items():
        if state is None or state.step is None:
            continue
        for number, model in enumerate(m for m in state.models if m.kind == kind):
            if _is_whole(model):
                tensors = (model.names, model.buffers, model.sizes_bytes)
                seen.setdefault((state.step, number, model.ranks, *tensors), {})[rank] = model
    for (step, *which), models in seen.items():
        held = {rank: m for rank, m in models.items() if kind != DDP or rank in m.ranks}
        if len(held) > 1 and isinstance(step, int):
            rates = {rank: state.rates for rank in held if (state := states[rank]) is not None}
            yield tuple(which), Copies(step, held, rates)


def _is_whole(model: ReplicatedModel) -> bool:
    """True where every column has an entry for every tensor."""
    count = len(model.names)
    return bool(count) and len(model.sizes_bytes) == count and len(model.checksums) == 8 * count


def sums_every_gradient(job: JobFacts, but: Collection[str] = ()) -> bool:
    """True where all ranks sum, in every step, tensors of every gradient's size or of all together; `but`: not these.

    Sums of activations (manual tensor parallelism) or of some gradients (experts owned by ranks) do not count.
    """
    steps = min(len(facts.steps) for facts in job.ranks)
    counts = _summed_sizes(job)
    if not counts or job.world_size < 2:
        return False
    return all(_is_summed(job, at, counts, steps, but) for at in range(len(job.ranks)))


def _is_summed(job: JobFacts, at: int, counts: Mapping[int, int], steps: int, but: Collection[str]) -> bool:
    sidecar = job.ranks[at].sidecar
    without = {missing.name for use in sidecar.gradients for missing in use.missing if missing.steps}
    models = [m for m in (sidecar.replicas.models if sidecar.replicas else ()) if m.kind == MODULE]
    sizes = Counter(
        size
        for model in models
        for place, (name, size) in enumerate(zip(model.names, model.sizes_bytes, strict=False))
        if place not in set(model.buffers) and name not in without and name not in but
    )
    if not sizes:
        return False
    one_by_one = all(counts.get(size, 0) >= steps * number for size, number in sizes.items())
    return one_by_one or counts.get(sum(size * number for size, number in sizes.items()), 0) >= steps


def _summed_sizes(job: JobFacts) -> dict[int, int]:
    """Number of all-reduces among all ranks, by size in bytes."""
    table, groups = job.instances, job.groups
    whole = [int(size) == job.world_size for size in groups["size"]]
    sizes: Counter[int] = Counter()
    for op, group, size in zip(table["op"], table["group"], table["size_bytes"], strict=True):
        if op == OP_CODE["all_reduce"] and 0 <= group < len(whole) and whole[group]:
            sizes[int(size)] += 1
    return sizes


def moves_state(job: JobFacts) -> bool:
    """True where ranks exchange more than sums, so that parameters outside a wrapper may be shards."""
    used = {COLLECTIVE_OPS[int(op)] for op in set(job.instances["op"].tolist())}
    return bool(used.intersection(_MOVES_STATE))


def replicated_names(job: JobFacts) -> frozenset[str]:
    """Names of the parameters that all ranks should hold alike."""
    kinds = (DDP, MODULE) if sums_every_gradient(job) else (DDP,)
    names: set[str] = set()
    for kind in kinds:
        for group in copies(job, kind):
            if len(group.models) == len(job.ranks):
                names.update(group.one.names)
    return frozenset(names)


# Ranks, lists and lines in remarks.

Shown = TypeVar("Shown")


def on_ranks(job: JobFacts, look: Callable[[Sidecar], Shown | None]) -> tuple[Shown | None, tuple[int, ...]]:
    """The first rank's of what `look` sees in sidecars, None where it sees nothing; and the ranks of whom it does, ()
    where it does of all."""
    seen = {rank: look(facts.sidecar) for rank, facts in zip(job.rank_ids, job.ranks, strict=True)}
    ranks = tuple(rank for rank, shown in seen.items() if shown is not None)
    return (seen[ranks[0]] if ranks else None), ranks if len(ranks) < len(seen) else ()


_SHOWN = 3  # names in one sentence


def named(names: Sequence[str]) -> str:
    """The first few names, and the number of the rest."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def at_line(what: str, line: CodeLine | None) -> tuple[Evidence, ...]:
    """The line of the script as evidence; nothing where it is not known."""
    return () if line is None else (Evidence(f"{what} at {line.words}"),)

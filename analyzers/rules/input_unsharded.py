"""Ranks read the same samples, or shards of unequal length.

What it detects: the capture saw ranks ask for the same samples within one epoch, or epochs of different length. A
sampler that does not split the data over the ranks is reported, too.
Why it costs: every rank repeats the others' samples, so that N ranks train as fast as one. With shards of unequal
length the last steps wait for ranks that have no data left.
How the gain is priced: not as step time, which stays the same, but as work done twice: severity "info". Where all
samples are the same, `training.same_data` says so above the headline.
How to fix: DistributedSampler with set_epoch, drop_last; split iterable data sets by rank and worker.
Limits: only ddprof's own capture records samples. Equal indices mean equal samples only where the ranks share one data
set: the contents of the first batches are compared, and where they differ nothing is said. Ranks of tensor, pipeline
and context parallelism read the same samples by design, so runs with those are not judged.
Sources: torch.utils.data.distributed.DistributedSampler documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.sampling import Overlap, overlap, same_contents, shares_replica
from ddprof.finding_ids import INPUT_UNSHARDED
from ddprof.findings import Abstention, Basis, Candidate, Evidence, Fix, Rule
from ddprof.sidecar import SamplerSettings
from ddprof.units import format_ranks, format_share


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find ranks that read other ranks' samples."""
    loaders = {
        rank: f.sidecar.dataloader
        for rank, f in zip(measures.job.rank_ids, measures.job.ranks, strict=True)
        if f.sidecar.dataloader is not None
    }
    if len(loaders) < 2 or (measures.job.world_size or 0) < 2:
        yield Abstention(RULE.id, "the trace does not record samplers; capture with ddprof run")
        return
    if shares_replica(measures.job):
        yield Abstention(RULE.id, "ranks that share a model replica read the same samples by design; not judged")
        return
    yield from _repeated(measures, {rank: loader.sampler or SamplerSettings() for rank, loader in loaders.items()})
    lengths = {rank: n for rank, loader in loaders.items() if (n := loader.batches_per_epoch) is not None}
    if len(set(lengths.values())) > 1:
        yield _uneven(lengths)


def _repeated(measures: Measures, samplers: dict[int, SamplerSettings]) -> Iterator[Candidate | Abstention]:
    """Candidates for samples read twice: by indices, by contents of iterable data sets, or by the sampler's class."""
    shared = overlap(measures.job.ranks)
    whole = tuple(rank for rank, sampler in samplers.items() if sampler.sharded is False)
    names = [samplers[rank].name or "the loader" for rank in whole or samplers]
    name = " and ".join(dict.fromkeys(names if whole else names[:1]))
    some = whole if len(whole) < len(samplers) else ()
    if shared is not None:
        if shared.is_real and shared.contents_equal is False:
            yield Abstention(
                RULE.id,
                "the ranks ask for the same indices but get different values: a data set of their own, or random "
                "augmentation of the labels too",
            )
        elif shared.is_real:
            numbers = measures.ranks(list(shared.positions))
            # Where the indices overlap only in part, the ranks' data sets may still be different ones.
            basis = Basis.RECORDED if shared.contents_equal or shared.in_step else Basis.DEDUCED
            yield _candidate(_words(name, some, shared), _evidence(shared, numbers), _sharded(name), basis)
    elif not any(sampler.name for sampler in samplers.values()) or name == "_InfiniteConstantSampler":
        if same_contents(list(measures.job.ranks)):
            text = "the first batch holds the same values on every rank"
            words = "the ranks read the same stream: their first batches are equal"
            yield _candidate(words, (Evidence(text),), _sharded("iterable data set"))
    elif whole:
        evidence = tuple(Evidence(f"sampler {samplers[r].name} is not sharded", r) for r in whole[:4])
        yield _candidate(_words(name, some, None), evidence, _sharded(name))


def _words(name: str, some: tuple[int, ...], shared: Overlap | None) -> str:
    """Summary for a sampler that is not sharded; `some`: the ranks that have it, where others do not."""
    if not some and (shared is None or shared.in_step):
        return f"{name} gives every rank the same samples"
    twice = "" if shared is None else f": {format_share(shared.share)} were read twice"
    return f"{name} draws from the whole data set on {format_ranks(some) if some else 'every rank'}{twice}"


def _evidence(shared: Overlap, numbers: tuple[int, ...]) -> tuple[Evidence, ...]:
    how = "the same samples in the same order" if shared.in_step else "samples that other ranks asked for too"
    lines = [
        f"{format_ranks(numbers)}: of the first {shared.samples} indices each, {format_share(shared.share)} are {how}"
    ]
    if shared.contents_equal:
        lines.append("the first batches hold the same values")
    return tuple(Evidence(line) for line in lines)


def _candidate(summary: str, evidence: tuple[Evidence, ...], fix: Fix, basis: Basis = Basis.RECORDED) -> Candidate:
    """A mistake that costs no time."""
    return Candidate(RULE.id, summary, 0.0, basis, evidence=evidence, fixes=(fix,))


def _sharded(name: str) -> Fix:
    return Fix(
        setting="sampler",
        current=name,
        suggested="DistributedSampler",
        patch="sampler = DistributedSampler(dataset, drop_last=True); loader = DataLoader(dataset, sampler=sampler)\n"
        "sampler.set_epoch(epoch)  # every epoch",
        why="each rank then reads its own part of the data",
        source="torch.utils.data.distributed.DistributedSampler documentation",
    )


def _uneven(lengths: dict[int, int]) -> Candidate:
    """Candidate for ranks with longer epochs than others."""
    shortest = min(lengths, key=lambda rank: lengths[rank])
    longest = max(lengths, key=lambda rank: lengths[rank])
    words = f"rank {shortest} has {lengths[shortest]} batches per epoch, rank {longest} has {lengths[longest]}"
    fix = Fix(
        setting="shard lengths",
        current=f"{lengths[shortest]} to {lengths[longest]} batches",
        suggested="equal on every rank",
        patch="sampler = DistributedSampler(dataset, drop_last=True)  # or Join(...) around the training loop",
        why="a rank without data leaves its peers waiting in a collective, or the epoch ends in a hang",
        source="torch.distributed.algorithms.Join documentation",
    )
    return _candidate(f"the ranks' shards have unequal lengths: {words}", (Evidence(words),), fix)


RULE = Rule(INPUT_UNSHARDED, "Ranks read the same samples", detect, bound="input")

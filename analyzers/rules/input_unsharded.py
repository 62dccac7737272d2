"""Ranks read the same samples, or uneven shards.

What it detects: the capture saw a sampler that does not split the data over the ranks, or shards of unequal length.
Why it costs: every rank repeats the others' samples: N ranks train as fast as one. Uneven shards make the last steps
wait.
How the gain is priced: not as step time (it stays the same): as work done twice. Severity is therefore "info" unless
shards are uneven.
How to fix: DistributedSampler with set_epoch, drop_last.
Limits: only ddprof's own capture records the sampler; an ordinary trace cannot show it.
Sources: torch.utils.data.distributed.DistributedSampler documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.measures import Measures

from ddprof.findings import Abstention, Candidate, Evidence, Fix, Rule


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Samplers that do not shard."""
    samplers = {
        measures.job.rank_ids[p]: (f.sidecar.get("dataloader") or {}).get("sampler")
        for p, f in enumerate(measures.job.ranks)
        if isinstance(f.sidecar.get("dataloader"), dict)
    }
    known = {r: s for r, s in samplers.items() if isinstance(s, dict) and s.get("sharded") is not None}
    if not known or measures.job.world_size < 2:
        yield Abstention(RULE.id, "the trace does not record samplers; capture with ddprof run")
        return
    whole = tuple(r for r, s in known.items() if s["sharded"] is False)
    uneven = tuple(r for r, s in known.items() if s.get("even") is False)
    if not whole and not uneven:
        return
    name = next(iter(known.values())).get("class", "the sampler")
    yield Candidate(
        id=RULE.id,
        summary=f"{name} gives every rank the same samples" if whole else "the ranks' shards have unequal lengths",
        ranks=(),
        lost_us=0.0,
        changes=(),
        confidence=0.9,
        evidence=tuple(Evidence(f"sampler {known[r].get('class')} is not sharded", r) for r in whole[:4]),
        fixes=(
            Fix(
                setting="sampler",
                current=str(name),
                suggested="DistributedSampler",
                patch="sampler = DistributedSampler(dataset, drop_last=True); loader = DataLoader(dataset, "
                "sampler=sampler)\n"
                "sampler.set_epoch(epoch)  # every epoch",
                why="each rank then reads its own part of the data",
                source="torch.utils.data.distributed.DistributedSampler documentation",
            ),
        ),
        ceiling_us=0.0,
    )


RULE = Rule("input.unsharded", "Ranks read the same samples", detect, bound="input")

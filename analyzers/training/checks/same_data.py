"""All ranks train on the same samples.

What it detects: in their first pass all ranks asked for the same samples in the same order, and the first batches hold
the same values, or the sampler is known to leave the data whole; or the first batches of iterable data sets are equal.
Why it matters: averaged gradients of equal batches are those of one rank. N ranks learn what one would learn, from the
batch of one; an epoch shows each sample N times.
How to fix: DistributedSampler; iterable data sets split by rank and worker.
Limits: needs ddprof's own capture. Of batches that the script makes itself the first one that a DistributedDataParallel
model is given is compared, on CPU ranks; where they are drawn at random, the job is one on made-up data. Jobs whose
ranks share a model replica (tensor, pipeline, context parallelism) read the same samples by design.
Sources: torch.utils.data.distributed.DistributedSampler documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.script.prepared import DRAWN
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.whole_run.sampling import overlap, same_contents, shares_replica
from ddprof.finding_ids import TRAINING_SAME_DATA
from ddprof.findings import Check, Evidence, Fix, Remark

OF_A_STREAM = "_InfiniteConstantSampler"  # torch's for an iterable data set: it chooses nothing

_SPLIT = Fix(
    setting="sampler",
    suggested="DistributedSampler, or a stream split by rank and worker",
    patch="sampler = DistributedSampler(dataset)\nloader = DataLoader(dataset, sampler=sampler)",
    why="each rank then reads its own part of the data",
    source="torch.utils.data.distributed.DistributedSampler documentation",
)
_OTHER_SEEDS = Fix(
    setting="seed of the batches",
    suggested="another on each rank",
    patch="torch.manual_seed(seed + dist.get_rank())  # after the model is made",
    why="each rank then draws its own batches",
    source="PyTorch reproducibility notes",
)


def detect(job: JobFacts) -> Iterator[Remark]:
    """Jobs of which every rank learns from the batches of one."""
    if len(job.ranks) < 2 or shares_replica(job):
        return
    seen = overlap(job.ranks)
    samplers = [s for facts in job.ranks if (s := facts.sidecar.loader.sampler) is not None and s.name != OF_A_STREAM]
    equal = same_contents(job.ranks, whole=True)
    if seen is None:
        is_same, text = bool(equal) and not samplers, "no sampler chooses the samples"
    else:
        is_split = any(sampler.sharded is not False for sampler in samplers) or len(samplers) < len(job.ranks)
        is_same = seen.in_step and len(seen.positions) == len(job.ranks)
        is_same &= bool(equal) or (seen.contents_equal is not False and not is_split)
        text = f"the first {seen.samples} samples of each rank are the same, in the same order"
    if not is_same:
        return
    values = (Evidence("the first batch holds the same values on every rank"),) if equal else ()
    is_drawn = seen is None and all(map(_draws, job.ranks))
    who = "both" if len(job.ranks) == 2 else f"all {len(job.ranks)}"
    yield Remark(
        id=CHECK.id,
        summary=f"{who} ranks train on the same samples: together they learn what one would",
        ranks=(),
        severity="info" if is_drawn else "warning",
        evidence=(Evidence(text), *values),
        fixes=(_OTHER_SEEDS if is_drawn else _SPLIT,),
    )


def _draws(facts: RankFacts) -> bool:
    """True where the training thread draws tensors at random between its passes, as it does for made-up batches."""
    operators = facts.script_operators
    return bool((matches(DRAWN, facts.strings)[operators["name"]] & ~operators["in_optimizer"]).any())


CHECK = Check(TRAINING_SAME_DATA, "All ranks train on the same samples", detect)

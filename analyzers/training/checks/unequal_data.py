"""Ranks of one model train on unequal numbers of batches.

What it detects: the job ended by itself, and some ranks of a DistributedDataParallel model made fewer optimizer steps
than others. While the others made more they had ended: their data was used up, as the context manager `Join` allows.
Why it matters: a rank without data still takes part in each sum, with zeros. Averages are over all ranks all the same,
so the last steps learn from fewer samples at a smaller rate; samples of the short ranks count more in others.
How to fix: shards of equal length (DistributedSampler pads or drops), or `divide_by_initial_world_size=False` in
`Join`, which takes averages over ranks that have data.
Limits: needs ddprof's own capture, and a job that ended without an error. Differences below 2 % of the steps, or of a
single step, are what padding would hide.
Sources: torch.distributed.algorithms.Join documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.whole_run.sampling import MIN_SHARE
from ddprof.finding_ids import TRAINING_UNEQUAL_DATA
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.sidecar import Sidecar
from ddprof.units import format_ranks

MOST_ALIKE = 1  # steps: one batch more is the rest of a division


def detect(job: JobFacts) -> Iterator[Remark]:
    """Ranks that ran out of data before the others."""
    sidecars = {rank: facts.sidecar for rank, facts in zip(job.rank_ids, job.ranks, strict=True)}
    made = {rank: steps for rank, sidecar in sidecars.items() if (steps := _steps(sidecar)) is not None}
    if len(made) < 2 or len(made) < len(sidecars):
        return
    most = max(made.values())
    floor = max(MOST_ALIKE, MIN_SHARE * most)
    short = tuple(sorted(rank for rank, steps in made.items() if most - steps > floor))
    longest = next(sidecar for rank, sidecar in sidecars.items() if made[rank] == most)
    if not short or not all(_ended_before(sidecars[rank], longest) for rank in short):
        return
    yield Remark(
        id=CHECK.id,
        summary=f"{format_ranks(short)} trained on less data: {_counts(made, short)} steps, others up to {most}",
        ranks=short,
        severity="warning",
        evidence=(Evidence(f"{format_ranks(short)} had ended when the others went on"),),
        fixes=(
            Fix(
                setting="data of each rank",
                suggested="shards of equal length, or averages over the ranks that have data",
                patch="sampler = DistributedSampler(dataset)  # pads; drop_last=True drops\n"
                "# with Join([model], divide_by_initial_world_size=False): ...",
                why="ranks without data add zeros to each sum that is divided by all ranks",
                source="torch.distributed.algorithms.Join documentation",
            ),
        ),
    )


def _steps(sidecar: Sidecar) -> int | None:
    """Optimizer steps of a rank that ended by itself and held a copy of a DDP model; None for any other."""
    held = any(model.kind == "ddp" for model in sidecar.models)
    return sidecar.steps_total if held and sidecar.state == "exit" and not _failed(sidecar) else None


def _failed(sidecar: Sidecar) -> bool:
    return sidecar.end is not None and sidecar.end.error is not None


def _ended_before(short: Sidecar, longest: Sidecar) -> bool:
    """True where the rank with the most steps began several after another rank's last one, of the usual length: in
    that one it may have waited for the others, as `Join` does.
    """
    timed = [(step.start_ns, ns) for step in short.steps if step.start_ns is not None and (ns := step.length_ns)]
    begun = [step.start_ns for step in longest.steps if step.start_ns is not None]
    last_ns = max(timed)[0] + median(ns for _, ns in timed) if timed else None
    return last_ns is not None and sum(start_ns > last_ns for start_ns in begun) > MOST_ALIKE


def _counts(made: Mapping[int, int], short: tuple[int, ...]) -> str:
    counts = sorted({made[rank] for rank in short})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


CHECK = Check(TRAINING_UNEQUAL_DATA, "Ranks train on unequal numbers of batches", detect)

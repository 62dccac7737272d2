"""Some ranks have no gradient for parameters that have one on other ranks.

What it detects: parameters that all ranks are meant to hold alike had a gradient on some ranks only when the optimizer
stepped.
Why it matters: a rank without the gradient leaves the parameter as it is while others change it. A script may sum
gradients itself and skip what is None. Ranks then sum different tensors with one another, or wait for ever.
How to fix: sum over all ranks for every parameter, zeros where a rank has none; or DistributedDataParallel with
`find_unused_parameters=True`.
Limits: needs ddprof's own capture; only steps of trace windows are looked at. Experts, stages and shards that ranks own
are not compared.
Sources: DistributedDataParallel documentation (find_unused_parameters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import at_line, named, replicated_names
from ddprof.finding_ids import TRAINING_GRADIENTS_MISSING
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.sidecar.training import OptimizerGradients
from ddprof.units import format_count, format_ranks


def detect(job: JobFacts) -> Iterator[Remark]:
    """Optimizers whose ranks disagree."""
    recorded = [facts.sidecar.gradients for facts in job.ranks]
    if len(recorded) < 2 or not any(use.missing for uses in recorded for use in uses):
        return
    shared = replicated_names(job)
    for uses in zip(*recorded, strict=False):
        if len({use.optimizer for use in uses}) == 1:
            yield from _disagreeing(dict(zip(job.rank_ids, uses, strict=True)), shared)


def _disagreeing(uses: Mapping[int, OptimizerGradients], shared: frozenset[str]) -> Iterator[Remark]:
    steps = set.intersection(*(set(use.steps) for use in uses.values()))
    without: dict[tuple[str, int], set[int]] = {}
    for rank, use in uses.items():
        for missing in use.missing:
            for step in steps.intersection(missing.steps) if missing.name in shared else ():
                without.setdefault((missing.name, step), set()).add(rank)
    uneven = {key: ranks for key, ranks in without.items() if len(ranks) < len(uses)}
    if not uneven:
        return
    names = list(dict.fromkeys(name for name, _ in sorted(uneven)))
    (name, step), ranks = min(uneven.items(), key=lambda item: item[0][::-1])
    one = next(iter(uses.values()))
    lacking = tuple(sorted(set().union(*uneven.values())))
    yield Remark(
        id=CHECK.id,
        summary=f"{format_count(len(names), 'parameter tensor')} had a gradient on some ranks only: {named(names)}",
        ranks=lacking if len(lacking) < len(uses) else (),
        severity="critical",
        evidence=(
            Evidence(f"step {step}: none for {name} on {format_ranks(tuple(sorted(ranks)))}"),
            Evidence(f"in {len({step for _, step in uneven})} of {len(steps)} steps that all ranks recorded"),
            *at_line(f"{one.optimizer} made", one.line),
        ),
        fixes=(
            Fix(
                setting="gradients that a rank does not have",
                suggested="zeros, so that every rank sums every parameter",
                patch="for p in model.parameters():\n    p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
                "    torch.distributed.all_reduce(p.grad)",
                why="ranks that skip a parameter sum the next one with what the others sum now",
                source="DistributedDataParallel documentation",
            ),
        ),
    )


CHECK = Check(TRAINING_GRADIENTS_MISSING, "Gradients on some ranks only", detect)

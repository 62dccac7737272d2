"""Parameters that the optimizer holds and no step gives a gradient.

What it detects: parameters with `requires_grad` that have no gradient on any rank when their optimizer steps. That
holds in all steps of a trace window and up to a hundred after it; and for which the optimizer has no state, where it
keeps some.
Why it matters: they are never trained. Often a layer is not called any more, an output is not in the loss, or a tensor
was detached. In DistributedDataParallel they also need `find_unused_parameters`, which walks the graph in each step.
How to fix: use them, freeze them (`requires_grad_(False)`), or remove them.
Limits: needs ddprof's own capture. Some parts are used only now and then: a head of one task, an expert that no token
reaches. They can look unused where the optimizer keeps no state. Frozen parameters and gradients that are zero are not
looked at. Nor are optimizers that hold no parameter of the model (ZeRO's master copies).
Sources: DistributedDataParallel documentation (find_unused_parameters).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import at_line, named
from ddprof.finding_ids import TRAINING_UNUSED_PARAMETERS
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.sidecar.training import OptimizerGradients
from ddprof.units import format_count


def detect(job: JobFacts) -> Iterator[Remark]:
    """Optimizers with such parameters."""
    lacking = [facts.sidecar.gradients for facts in job.ranks if facts.sidecar.replicas is not None]
    if len(lacking) < len(job.ranks):  # another rank may use what these do not
        return
    for uses in zip(*lacking, strict=False):
        if len({(use.optimizer, use.parameters) for use in uses}) == 1:
            yield from _unused(uses)


def _unused(uses: Sequence[OptimizerGradients]) -> Iterator[Remark]:
    never = [{m.name for m in use.missing if m.never} for use in uses]
    everywhere = set.intersection(*never)
    names = [m.name for m in uses[0].missing if m.name in everywhere]
    if not names:
        return
    one = uses[0]
    elements = sum(m.elements for m in one.missing if m.name in everywhere)
    steps = "in no step so far" if one.stateful else f"in none of {len(one.steps) + one.followed} steps"
    yield Remark(
        id=CHECK.id,
        summary=f"{len(names)} of {format_count(one.parameters, 'parameter tensor')} of {one.optimizer} have a "
        f"gradient {steps}, on any rank: {named(names)}",
        evidence=(
            Evidence(f"{elements:,} numbers that are never trained".replace(",", " ")),
            *at_line(f"{one.optimizer} made", one.line),
        ),
        fixes=(
            Fix(
                setting="unused parameters",
                suggested="use them in the loss, freeze them or remove them",
                patch="for parameter in layer.parameters():\n    parameter.requires_grad_(False)  # before wrapping",
                why="they keep their initial values; without them find_unused_parameters is not needed",
                source="DistributedDataParallel documentation",
            ),
        ),
    )


CHECK = Check(TRAINING_UNUSED_PARAMETERS, "Parameters that are never trained", detect)

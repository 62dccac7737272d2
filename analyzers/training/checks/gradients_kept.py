"""Gradients are never zeroed: each step adds to those of all steps before.

What it detects: in the steps after a trace window every backward pass met the gradients that the optimizer's last step
had used, unchanged, and added to them.
Why it matters: the optimizer follows the sum of all gradients since the start: it overshoots, and old batches never
lose their weight. No error is raised.
How to fix: `optimizer.zero_grad()` once for each optimizer step.
Limits: needs ddprof's own capture, and three steps after a window. Sharded gradients (FSDP, DTensor, ZeRO) are not
looked at. Gradients that the script scales down or replaces itself are not taken for forgotten.
Sources: torch.optim documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import at_line, on_ranks
from ddprof.finding_ids import TRAINING_GRADIENTS_KEPT
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.sidecar import Sidecar
from ddprof.sidecar.training import OptimizerGradients

FEWEST_STEPS = 2  # an optimizer may step twice on one sum of gradients


def detect(job: JobFacts) -> Iterator[Remark]:
    """The first such optimizer, with the ranks that keep its gradients."""
    use, ranks = on_ranks(job, _kept)
    if use is None:
        return
    yield Remark(
        id=CHECK.id,
        summary=f"gradients of {use.optimizer} are never zeroed: each step adds to those of all steps before",
        ranks=ranks,
        severity="warning",
        evidence=(
            Evidence(f"unchanged before the backward pass of {use.watched_steps} steps, all that were looked at"),
            *at_line(f"{use.optimizer} made", use.line),
        ),
        fixes=(
            Fix(
                setting="optimizer.zero_grad",
                current="not called",
                suggested="called once for each optimizer step",
                patch="optimizer.step()\noptimizer.zero_grad()",
                why="each step then follows the gradients of its own batches",
                source="torch.optim documentation",
            ),
        ),
    )


def _kept(sidecar: Sidecar) -> OptimizerGradients | None:
    return next((use for use in sidecar.gradients if FEWEST_STEPS <= use.watched_steps == use.kept_steps), None)


CHECK = Check(TRAINING_GRADIENTS_KEPT, "Gradients are never zeroed", detect)

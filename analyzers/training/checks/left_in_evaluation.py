"""A model trains on in evaluation mode: `train()` is not called after an evaluation.

What it detects: a model that had trained was switched by `eval()`, and its optimizer has stepped several times since
without `train()`. It has dropout, or batch normalisation with running statistics.
Why it matters: from the first evaluation on dropout does nothing and batch normalisation keeps its statistics: the
model is fitted without regularisation, to statistics of its first steps. No error is raised.
How to fix: `model.train()` after each evaluation, or at the beginning of each epoch.
Limits: needs ddprof's own capture, to the end of the job. Only a whole model as it is called counts: layers that are
frozen one by one do not, nor does a model that begins in evaluation mode.
Sources: torch.nn.Module documentation (eval, train).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import on_ranks
from ddprof.finding_ids import TRAINING_LEFT_IN_EVALUATION
from ddprof.findings import Check, Evidence, Fix, Remark


def detect(job: JobFacts) -> Iterator[Remark]:
    """The first such model, with the ranks that leave one so."""
    model, ranks = on_ranks(job, attrgetter("left_in_evaluation"))
    if model is None:
        return
    yield Remark(
        id=CHECK.id,
        summary=f"{model.name or 'the model'} trains in evaluation mode from step {model.step} on, the last "
        f"{model.steps} steps: train() is not called after eval()",
        ranks=ranks,
        severity="warning",
        evidence=(
            *(Evidence(f"switched at {at}") for at in [model.at] if at),
            Evidence(f"layers that act otherwise in it: {', '.join(model.layers)}"),
        ),
        fixes=(
            Fix(
                setting="mode of the model",
                current="evaluation",
                suggested="training, from the end of each evaluation",
                patch="model.train()  # at the beginning of each epoch",
                why="dropout and batch normalisation then act as before the evaluation",
                source="torch.nn.Module documentation",
            ),
        ),
    )


CHECK = Check(TRAINING_LEFT_IN_EVALUATION, "A model trains in evaluation mode", detect)

"""No parameter changes while optimizers step: nothing is learnt.

What it detects: over a trace window with several optimizer steps no parameter of the models that are called changed, on
any rank.
Why it matters: the job trains nothing, and no error is raised. The optimizer holds parameters of another model (made
anew, copied or moved since), every gradient is cut off, the learning rate is zero, or updates are too small for the
precision of the parameters.
How to fix: make the optimizer from the parameters of the model that is called, after its last change.
Limits: needs ddprof's own capture, and a window that ended before the job did. Steps that a GradScaler skips do not
count; sharded parameters (FSDP, DTensor, ZeRO) are not looked at. Of tensors with more than 512 numbers some are read:
those unchanged, something else may still have written to it, and nothing is said.
Sources: torch.optim documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.model import JobFacts
from ddprof.finding_ids import TRAINING_UNCHANGED
from ddprof.findings import Check, Evidence, Fix, Remark

FEWEST_UPDATES = 2  # the first of a warm-up has a rate of zero


def detect(job: JobFacts) -> Iterator[Remark]:
    """Jobs whose every rank trains nothing."""
    states = [facts.sidecar.replicas for facts in job.ranks]
    if not all(state is not None and state.unchanged and state.updates >= FEWEST_UPDATES for state in states):
        return
    updates, step = next((state.updates, state.step) for state in states if state is not None)
    yield Remark(
        id=CHECK.id,
        summary=f"no parameter changed in {updates} optimizer steps: nothing is learnt",
        severity="critical",
        evidence=(Evidence(f"up to step {step}, in every model that was called"),),
        fixes=(
            Fix(
                setting="parameters of the optimizer",
                suggested="those of the model that is called, with a learning rate above zero",
                patch="optimizer = torch.optim.AdamW(model.parameters(), lr)  # of the last model made",
                why="an optimizer changes the tensors that it was given, not those of a copy",
                source="torch.optim documentation",
            ),
        ),
    )


CHECK = Check(TRAINING_UNCHANGED, "Nothing is learnt", detect)

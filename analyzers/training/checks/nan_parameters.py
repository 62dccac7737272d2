"""Parameters are NaN while training goes on.

What it detects: parameters that hold NaN before a backward pass, after a trace window or later in the run.
Why it matters: whatever is computed with them is NaN, and no step heals it: the job trains nothing more, and no error
is raised.
How to fix: go back to a checkpoint from before; leave out steps whose loss or gradients are not finite, on all ranks
alike; clip gradients, or lower the learning rate.
Limits: needs ddprof's own capture. At most 512 numbers of each of 1,024 tensors are read, at steps that lie further and
further apart; sharded parameters (FSDP, DTensor, ZeRO) are not.
Sources: PyTorch automatic mixed precision documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import named, on_ranks
from ddprof.finding_ids import TRAINING_NAN_PARAMETERS
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.sidecar import Sidecar
from ddprof.sidecar.training import ReplicatedModel
from ddprof.units import format_count


def detect(job: JobFacts) -> Iterator[Remark]:
    """The first model of the lowest rank, with the ranks whose parameters are so too."""
    first, ranks = on_ranks(job, _first)
    if first is None:
        return
    step, model, names = first
    total = format_count(len(model.names) - len(model.buffers), "tensor")
    yield Remark(
        id=CHECK.id,
        summary=f"parameters of {model.name or 'the model'} are NaN: {len(names)} of {total}",
        ranks=ranks,
        severity="critical",
        evidence=(Evidence(f"after step {step}: {named(names)}"),),
        fixes=(
            Fix(
                setting="steps that are not finite",
                suggested="left out on all ranks, from the last good checkpoint on",
                patch="norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "if torch.isfinite(norm):  # of averaged gradients: the same on all ranks\n    optimizer.step()",
                why="a parameter that is NaN stays so, and makes every output NaN",
                source="PyTorch automatic mixed precision documentation",
            ),
        ),
    )


def _first(sidecar: Sidecar) -> tuple[int, ReplicatedModel, tuple[str, ...]] | None:
    """Step, model and names of its parameters that are NaN, as of the first time; None without any."""
    for state in (sidecar.replicas, sidecar.later_replicas):
        for model in () if state is None else state.models:
            names = tuple(model.names[at] for at in model.nan if at not in model.buffers and at < len(model.names))
            if names and state is not None:
                return state.step or 0, model, names
    return None


CHECK = Check(TRAINING_NAN_PARAMETERS, "Parameters are NaN", detect)

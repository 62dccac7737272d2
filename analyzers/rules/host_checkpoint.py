"""Saving state stops the job.

What it detects: ranges that save or load state, evaluate or log, inside the measured steps.
Why it costs: the device is idle while the host serialises and writes.
How the gain is priced: the run is replayed without those ranges and the copies they launch: the share hidden by an
asynchronous save.
How to fix: asynchronous checkpoints, less often, sharded over the ranks.
Limits: the cost per step depends on how often it happens outside the window; the price is for the steps that were
traced.
Sources: torch.distributed.checkpoint.async_save documentation; science.md E3 (Daly-Young interval).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence import largest_span

from ddprof.findings import Abstention, Candidate, Change, Fix, Rule
from ddprof.units import format_ranks, format_us


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Saves inside steps."""
    spent = measures.host_spans_us["checkpoint"]
    if not spent.any():
        return
    worst = int(np.argmax(spent))
    savers = np.flatnonzero(spent > 0.25 * spent.max())
    alone = len(savers) <= len(spent) / 2
    numbers = measures.ranks(savers) if alone else ()
    yield Candidate(
        id=RULE.id,
        summary=f"saving state stops {format_ranks(numbers)} for {format_us(float(spent.max()))} per traced step",
        ranks=numbers,
        lost_us=float(measures.cause_us("checkpoint").mean()),
        changes=(Change("remove_host", target="checkpoint"),),
        confidence=0.9,
        evidence=tuple(largest_span(measures, worst, "checkpoint")),
        fixes=(
            Fix(
                setting="checkpointing",
                current="synchronous",
                suggested="asynchronous, sharded, less often",
                patch="torch.distributed.checkpoint.async_save(state_dict, checkpoint_id=path)",
                why="the copy to host memory is short; serialising and writing can run beside the next steps",
                source="torch.distributed.checkpoint.async_save documentation",
            ),
        ),
    )


RULE = Rule("host.checkpoint", "Saving state stops the job", detect, bound="host")

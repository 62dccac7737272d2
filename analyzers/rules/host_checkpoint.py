"""Saving state stops the job.

What it detects: ranges that save or load state, evaluate or log, inside the measured steps.
Why it costs: the device is idle while the host serialises and writes.
How the gain is priced: the run is replayed without those ranges and the copies that they launch, which is what an
asynchronous save hides. Where all saves fall outside the traced steps: their share of the run's time as the capture
recorded it (an upper bound, because an asynchronous save still copies).
How to fix: save asynchronously, less often, sharded over the ranks.
Limits: where a save fell into the traced steps, the price is for those steps; how often the run saves is known only
where ddprof captured it.
Sources: torch.distributed.checkpoint.async_save documentation; Daly-Young interval.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.pauses import Pauses, worst_pauses
from ddprof.analyzers.rules.evidence.occurrences import occurrences
from ddprof.analyzers.rules.evidence.over_the_run import MIN_SHARE, over_the_run
from ddprof.analyzers.rules.evidence.spans import largest_span, run_evidence
from ddprof.findings import Abstention, Candidate, Change, Fix, Rule
from ddprof.units import format_ranks, format_share, format_us

FIX = Fix(
    setting="checkpointing",
    current="synchronous",
    suggested="asynchronous, sharded, less often",
    patch="torch.distributed.checkpoint.async_save(state_dict, checkpoint_id=path)",
    why="the copy to host memory is short; serialising and writing can run beside the next steps",
    source="torch.distributed.checkpoint.async_save documentation",
)


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Saves inside steps."""
    spent = measures.host_spans_us["checkpoint"]
    outside = worst_pauses(measures.job.ranks, lambda sidecar: sidecar.checkpoints)
    if not spent.any():
        if outside is not None and outside.share >= MIN_SHARE:
            yield _over_the_run(measures, outside)
        return
    worst = int(np.argmax(spent))
    savers = np.flatnonzero(spent > 0.25 * spent.max())
    alone = len(savers) <= len(spent) / 2
    numbers = measures.ranks(savers) if alone else ()
    often = "".join(f" ({seen.text})" for seen in occurrences(measures, worst, "checkpoint"))
    yield Candidate(
        id=RULE.id,
        summary=f"saving state stops {format_ranks(numbers)} for {format_us(float(spent.max()))} per traced step"
        + often,
        ranks=numbers,
        lost_us=float(measures.cause_us("checkpoint").mean()),
        changes=(Change("remove_host", target="checkpoint"),),
        confidence=0.9,
        evidence=(
            *largest_span(measures, worst, "checkpoint"),
            *(() if outside is None else (run_evidence(measures, outside, "saves and loads"),)),
        ),
        fixes=(FIX,),
    )


def _over_the_run(measures: Measures, outside: Pauses) -> Candidate:
    """No save fell into the traced steps, but the run as a whole has them."""
    rank = measures.job.rank_ids[outside.position]
    summary = (
        f"saving and loading state takes {format_share(outside.share)} of the run on rank {rank}, outside the "
        f"traced steps: {outside.count} times, up to {format_us(outside.longest_ns / 1e3)}"
    )
    return over_the_run(RULE.id, summary, measures, outside, "saves and loads", FIX)


RULE = Rule("host.checkpoint", "Saving state stops the job", detect, bound="host")

"""Saving state stops the job.

What it detects: ranges that save or load state, evaluate or log, inside the measured steps.
Why it costs: the device is idle while the host serialises and writes.
How the gain is priced: the run is replayed without those ranges and the copies that they launch, which is what an
asynchronous save hides. Where all saves fall outside the traced steps: their share of the run's time as the capture
recorded it (an upper bound, because an asynchronous save still copies). What one rank alone was seen to do outside the
traced steps (samples of Python stacks): its share of the samples.
How to fix: save asynchronously, less often, sharded over the ranks.
Limits: where a save fell into the traced steps, the price is for those steps; how often the run saves is known only
where ddprof captured it.
Sources: torch.distributed.checkpoint.async_save documentation; Daly-Young interval.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES, TIMES_PEERS
from ddprof.analyzers.job.script.occupying import occupying_line, seen_saving
from ddprof.analyzers.job.whole_run.pauses import Pauses, worst_pauses
from ddprof.analyzers.rules.evidence.occurrences import is_recorded_once, occurrences
from ddprof.analyzers.rules.evidence.over_the_run import MIN_SHARE, over_the_run
from ddprof.analyzers.rules.evidence.spans import largest_span, run_evidence
from ddprof.findings import Abstention, Basis, Candidate, Change, Doubt, Evidence, Fix, Rule
from ddprof.units import format_ranks, format_share, format_us

EVALUATES = re.compile(r" _*\w*(?:eval|valid|_val\b|val_)", re.IGNORECASE)  # of a frame in words: its function
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
        else:
            yield from _seen_over_the_run(measures)
        return
    worst = int(np.argmax(spent))
    savers = np.flatnonzero(spent > 0.25 * spent.max())
    alone = len(savers) <= len(spent) / 2
    numbers = measures.ranks(savers) if alone else ()
    line = occupying_line(measures.job.ranks[worst], "checkpoint")
    often = "".join(f" ({seen.text})" for seen in occurrences(measures, worst, "checkpoint"))
    is_once = outside is None and is_recorded_once(measures, worst, "checkpoint")
    yield Candidate(
        id=RULE.id,
        summary=f"{_doing(line)} stops {format_ranks(numbers)} for {format_us(float(spent.max()))} per traced step"
        + often
        + ("" if line is not None else _called_by(measures, worst)),
        ranks=numbers,
        lost_us=float(measures.cause_us("checkpoint").mean()),
        changes=(Change("remove_host", target="checkpoint"),),
        basis=Basis.RECORDED,
        evidence=(
            *largest_span(measures, worst, "checkpoint"),
            *(() if outside is None else (run_evidence(measures, outside, "saves and loads"),)),
        ),
        fixes=(FIX if line is None or not EVALUATES.search(line) else _evaluation(line),),
        doubts=(Doubt.ONE_EVENT,) if is_once else (),
    )


def _doing(line: str | None) -> str:
    """What stops the ranks, with its line where frames say it."""
    if line is None:
        return "saving state"
    return f"{'evaluating' if EVALUATES.search(line) else 'saving or logging'} in {line}"


def _evaluation(line: str) -> Fix:
    return Fix(
        setting=line,
        suggested="evaluate on all ranks at once (sharded), less often, or in a job of its own",
        patch="sampler = DistributedSampler(validation, shuffle=False)  # each rank its part; then all_reduce the sums",
        why="ranks that do not evaluate wait for those that do in the next collective",
        source="torch.utils.data.distributed.DistributedSampler documentation",
    )


def _over_the_run(measures: Measures, outside: Pauses) -> Candidate:
    """No save fell into the traced steps, but the run as a whole has them."""
    rank = measures.job.rank_ids[outside.position]
    summary = (
        f"saving and loading state takes {format_share(outside.share)} of the run on rank {rank}, outside the "
        f"traced steps: {outside.count} times, up to {format_us(outside.longest_ns / 1e3)}"
        f"{_called_by(measures, outside.position)}"
    )
    return over_the_run(
        RULE.id, summary, measures, outside, "saves and loads", FIX, (rank,) if outside.is_alone else ()
    )


def _called_by(measures: Measures, position: int) -> str:
    """The line of the script that saves, where samples of the whole run say it."""
    seen = seen_saving(measures.job.ranks[position])
    return "" if seen is None else f", in {seen.line}"


def _seen_over_the_run(measures: Measures) -> Iterator[Candidate]:
    """What one rank alone was seen to do again and again over the whole run, and not in the traced steps."""
    found = [seen_saving(facts) for facts in measures.job.ranks]
    share = np.array([0.0 if seen is None else seen.share for seen in found])
    worst = int(np.argmax(share))
    seen, others = found[worst], np.delete(share, worst)
    if seen is None or seen.samples < FEWEST_SAMPLES or share[worst] < MIN_SHARE or not len(others):
        return
    if share[worst] < TIMES_PEERS * others.max():
        return
    rank, lost_us = measures.job.rank_ids[worst], seen.share * measures.step_us
    yield Candidate(
        id=RULE.id,
        summary=f"{_doing(seen.line)} takes {format_share(seen.share)} of the run on rank {rank} alone, outside the "
        "traced steps",
        ranks=(rank,),
        lost_us=lost_us,
        changes=(),
        basis=Basis.TIMED,
        evidence=(Evidence(f"seen there in {seen.samples} of {seen.of} samples of the whole run", rank),),
        fixes=(_evaluation(seen.line) if EVALUATES.search(seen.line) else FIX,),
        ceiling_us=lost_us,
        band=0.5,
    )


RULE = Rule("host.checkpoint", "Saving state stops the job", detect, bound="host", tells_line=True)

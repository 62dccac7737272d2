"""Saving state blocks the job.

What it detects: ranges that save or load state, evaluate or log, inside the measured steps.
Why it costs: the device is idle while the host serialises and writes.
How the gain is priced: the run is replayed without those ranges and the copies that they launch, which is what an
asynchronous save hides. Where all saves fall outside the traced steps, and on CPU ranks: their share of the run's time
as the capture recorded it (an upper bound, because an asynchronous save still copies). What one rank alone was seen to
do over the whole run (samples of Python stacks): its share of the samples. Where capture recorded all saves, their
share of the run decides, not how many fell into the traced steps.
How to fix: save asynchronously, less often, sharded over the ranks.
Limits: in a run that ddprof did not capture, a save in the traced steps is priced for those steps.
Sources: torch.distributed.checkpoint.async_save documentation; Daly-Young interval.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.occupying import occupying_line, seen_saving
from ddprof.analyzers.job.whole_run.pauses import Pauses, worst_pauses
from ddprof.analyzers.rules.evidence.over_the_run import is_told_by_the_run, over_the_run, over_the_samples, seen_alone
from ddprof.analyzers.rules.evidence.spans import largest_span, occurrences, run_evidence
from ddprof.analyzers.rules.host_evaluation import EVALUATES, shared_evaluation
from ddprof.finding_ids import HOST_CHECKPOINT
from ddprof.findings import Abstention, Basis, Candidate, Change, Doubt, Evidence, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_us

LEAST_US = 1.0  # per step: less is the rounding of a difference
LEAST_BESIDE = 0.1  # of the evaluation beside it: less is what lies between an evaluation and its own spans
ONE_STEP = "the only recorded step saves state, so the frequency of saves and the usual step are unknown"
FIX = Fix(
    setting="checkpointing",
    current="synchronous",
    suggested="asynchronous, sharded, less often",
    patch="torch.distributed.checkpoint.async_save(state_dict, checkpoint_id=path)",
    why="the copy to host memory is short; serialising and writing can overlap the next steps",
    source="torch.distributed.checkpoint.async_save documentation",
)


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find saves inside steps, or by samples over the whole run."""
    spent = measures.host_spans_us["checkpoint"] - measures.evaluating_us  # host.evaluation
    outside = worst_pauses(measures.job.ranks, lambda sidecar: sidecar.checkpoints)
    if outside is not None and is_told_by_the_run(measures, outside, spent):
        words = "saving and loading state takes", _called_by(measures, outside.position)
        yield over_the_run(RULE.id, words, measures, outside, "saves and loads", FIX)
        return
    least_us = max(LEAST_US, LEAST_BESIDE * float(measures.evaluating_us.max(initial=0.0)))
    if spent.max(initial=0.0) < least_us:
        yield from _seen_over_the_run(measures)
        return
    if outside is None and measures.steps == 1:
        yield Abstention(RULE.id, ONE_STEP)
        return
    worst = int(np.argmax(spent))
    times_us = _over_all_steps(measures, spent, outside)
    numbers = measures.theirs(times_us)
    line = occupying_line(measures.job.ranks[worst], "checkpoint")
    seen = occurrences(measures, worst, "checkpoint")
    often = "".join(f": {evidence.text}" for evidence in seen.evidence)
    yield Candidate(
        id=RULE.id,
        summary=f"{_doing(line)} blocks {measures.whom(numbers)}"
        + ("" if line is not None else _called_by(measures, worst)),
        ranks=numbers,
        lost_us=float(measures.cause_us("checkpoint").mean()),
        changes=(Change("remove_host", target="checkpoint"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"{format_us(float(spent.max()))} per traced step{often}", measures.job.rank_ids[worst]),
            *largest_span(measures, worst, "checkpoint"),
            *(() if outside is None else (run_evidence(measures, outside, "saves and loads"),)),
        ),
        fixes=(FIX if line is None or not EVALUATES.search(line) else shared_evaluation(line),),
        doubts=(Doubt.ONE_EVENT,) if outside is None and seen.is_once else (),
        times_us=tuple(times_us.tolist()),
    )


def _over_all_steps(measures: Measures, traced_us: Array, outside: Pauses | None) -> Array:
    """Saving of each rank per step, us, in the traced steps and in those outside, where all ranks recorded them: few
    traced steps may hold one rank's saves by chance.
    """
    if outside is None or not outside.shares:
        return traced_us
    others_us = measures.step_us * np.array(outside.shares)
    return (measures.steps * traced_us + outside.steps * others_us) / (measures.steps + outside.steps)


def _doing(line: str | None) -> str:
    """The activity that stops the ranks, with its script line where frames show it."""
    if line is None:
        return "saving state"
    return f"{'evaluating' if EVALUATES.search(line) else 'saving or logging'} in {line}"


def _called_by(measures: Measures, position: int) -> str:
    """The script line that saves, where samples of the whole run show it."""
    seen = seen_saving(measures.job.ranks[position])
    return "" if seen is None else f", in {seen.line}"


def _seen_over_the_run(measures: Measures) -> Iterator[Candidate]:
    """Candidate for one rank that alone saves or logs again and again over the whole run, recognised by name."""
    alone = seen_alone([seen_saving(facts) for facts in measures.job.ranks])
    if alone is not None and not EVALUATES.search(alone[1].line):
        yield over_the_samples(measures, RULE.id, *alone, f"{_doing(alone[1].line)} takes", FIX)


RULE = Rule(HOST_CHECKPOINT, "Saving state blocks the job", detect, bound="host", tells_line=True)

"""Saving state blocks the job.

What it detects: ranges that save or load state, evaluate or log, inside the measured steps.
Why it costs: the device is idle while the host serialises and writes.
How the gain is priced: the run is replayed without those ranges and the copies that they launch, which is what an
asynchronous save hides. Where all saves fall outside the traced steps: their share of the run's time as the capture
recorded it (an upper bound, because an asynchronous save still copies). What one rank alone was seen to do over the
whole run (samples of Python stacks): its share of the samples. Evaluating is also told by the model that a function
calls beside the steps, whatever its name. Where capture recorded all saves, their share of the run decides, not how
many fell into the traced steps.
How to fix: save asynchronously, less often, sharded over the ranks.
Limits: where a save fell into the traced steps of a run that ddprof did not capture, the price is for those steps.
Sources: torch.distributed.checkpoint.async_save documentation; Daly-Young interval.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES, TIMES_PEERS
from ddprof.analyzers.job.script.occupying import SeenSaving, occupying_line, seen_evaluating, seen_saving
from ddprof.analyzers.job.whole_run.pauses import Pauses, worst_pauses
from ddprof.analyzers.rules.evidence.occurrences import occurrences
from ddprof.analyzers.rules.evidence.over_the_run import MIN_SHARE, is_told_by_the_run, over_the_run
from ddprof.analyzers.rules.evidence.spans import largest_span, run_evidence
from ddprof.analyzers.rules.host_evaluation import shared_evaluation
from ddprof.finding_ids import HOST_CHECKPOINT
from ddprof.findings import Abstention, Basis, Candidate, Change, Doubt, Evidence, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_share, format_us

EVALUATES = re.compile(r" _*\w*(?:eval|valid|_val\b|val_)", re.IGNORECASE)  # of a frame in words: its function
LEAST_US = 1.0  # per step: less is the rounding of a difference
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
        yield _over_the_run(measures, outside)
        return
    if spent.max(initial=0.0) < LEAST_US:
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
    often = "".join(f": {said.text}" for said in seen.evidence)
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


def _over_the_run(measures: Measures, outside: Pauses) -> Candidate:
    """Candidate for saves that all fell outside the traced steps."""
    words = "saving and loading state takes", f", outside the traced steps{_called_by(measures, outside.position)}"
    return over_the_run(RULE.id, words, measures, outside, "saves and loads", FIX)


def _called_by(measures: Measures, position: int) -> str:
    """The script line that saves, where samples of the whole run show it."""
    seen = seen_saving(measures.job.ranks[position])
    return "" if seen is None else f", in {seen.line}"


def _seen_over_the_run(measures: Measures) -> Iterator[Candidate]:
    """Candidates for one rank that alone saves, logs or evaluates again and again over the whole run: recognised by
    name, or by the model called outside its steps.
    """
    saving = _alone([seen_saving(facts) for facts in measures.job.ranks])
    if any(facts.sidecar.evaluations for facts in measures.job.ranks):  # host.evaluation
        evaluating = None
        saving = None if saving is not None and EVALUATES.search(saving[1].line) else saving
    else:
        evaluating = _alone([seen_evaluating(facts) for facts in measures.job.ranks])
    alone = [one for one in (saving, evaluating) if one is not None]
    if not alone:
        return
    worst, seen = max(alone, key=lambda one: one[1].share)
    rank, lost_us = measures.job.rank_ids[worst], seen.share * measures.step_us
    what = f"evaluating in {seen.line}" if seen.is_evaluation else _doing(seen.line)
    yield Candidate(
        id=RULE.id,
        summary=f"{what} takes {format_share(seen.share)} of the run on rank {rank} alone",
        ranks=(rank,),
        lost_us=lost_us,
        basis=Basis.TIMED,
        evidence=(Evidence(f"{seen.line}: seen in {seen.samples} of {seen.of} samples of the whole run", rank),),
        fixes=(shared_evaluation(seen.line) if seen.is_evaluation or EVALUATES.search(seen.line) else FIX,),
        ceiling_us=lost_us,
        band=0.5,
    )


def _alone(of_ranks: list[SeenSaving | None]) -> tuple[int, SeenSaving] | None:
    """Position and samples of the only rank seen so; None for any other number of ranks."""
    share = np.array([0.0 if seen is None else seen.share for seen in of_ranks])
    worst = int(np.argmax(share))
    seen, others = of_ranks[worst], np.delete(share, worst)
    if seen is None or seen.samples < FEWEST_SAMPLES or share[worst] < MIN_SHARE or not len(others):
        return None
    return (worst, seen) if share[worst] >= TIMES_PEERS * others.max() else None


RULE = Rule(HOST_CHECKPOINT, "Saving state blocks the job", detect, bound="host", tells_line=True)

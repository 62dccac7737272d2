"""Evaluation takes a part of the training.

What it detects: a model in evaluation mode, from `eval()` to `train()`, with nothing trained meanwhile. One rank
evaluates alone, or all ranks do for 3 % of the run.
Why it costs: no step is trained meanwhile; where one rank evaluates alone, all others wait in the next collective.
How the gain is priced: its share of the run's time as the capture recorded it, else of the traced steps; at most that,
since a part of it is wanted.
How to fix: evaluate on all ranks, each its part; less often; on fewer batches; beside the training.
Limits: seen where ddprof captured the run. A model that is never switched back is taken for a teacher or for frozen
layers. Evaluating without `eval()` is recognised by its function's name, by the model it calls, or by samples of one
rank. So is a model that all ranks call beside the passes for a tenth of the run; the user has to say what for, except
where it ends before the next batch is fetched: a teacher needs the batch, and a rollout makes it.
Sources: torch.nn.Module.eval documentation; torch.utils.data.distributed.DistributedSampler documentation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.work import evaluating
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.occupying import (
    MOST_SHARE,
    after_update,
    line_that_evaluates,
    seen_evaluating,
    seen_saving,
)
from ddprof.analyzers.job.whole_run.cpu_waits import run_shares, traced_shares
from ddprof.analyzers.job.whole_run.pauses import worst_pauses
from ddprof.analyzers.rules.evidence.over_the_run import MIN_SHARE, over_the_samples, seen_alone
from ddprof.analyzers.rules.evidence.script import called_beside, script_now_and_then
from ddprof.analyzers.rules.evidence.spans import run_evidence
from ddprof.averages import typical
from ddprof.finding_ids import HOST_EVALUATION
from ddprof.findings import WARNING_SHARE, Abstention, Alters, Basis, Candidate, Evidence, Fix, Rule
from ddprof.units import format_share, format_us

EVALUATES = re.compile(r" _*\w*(?:eval|valid|_val\b|val_)", re.IGNORECASE)  # of a frame in words: its function
FEWEST_TIMES = 2  # over the run: one evaluation says nothing of how often more come


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find time with a model in evaluation mode."""
    outside = worst_pauses(measures.job.ranks, lambda sidecar: sidecar.evaluations)
    traced_us = measures.evaluating_us
    if outside is not None and outside.count >= FEWEST_TIMES:
        worst, share = outside.position, outside.share
        shares = outside.shares or (share,) * len(measures.job.ranks)  # (): of one rank, or not of all recorded
        times_us = measures.step_us * np.array(shares)
        without_cpu = run_shares(measures.job.ranks)
        seen = run_evidence(measures, outside, "evaluations")
    elif traced_us.any():
        worst = int(np.argmax(traced_us))
        share = float(traced_us[worst]) / measures.step_us
        times_us, without_cpu = traced_us, traced_shares(measures.job.ranks)
        seen = Evidence(f"{format_us(float(traced_us[worst]))} per traced step", measures.job.rank_ids[worst])
    else:
        yield from list(_seen_on_one_rank(measures)) or _called_beside(measures)
        return
    if execution_of(measures.job).computes_on_host:  # who had no CPU evaluated no longer for that
        times_us = times_us / (1 + np.nan_to_num(without_cpu.stretch))
    numbers = measures.theirs(times_us)
    alone = len(numbers) > 0
    if not alone:  # what one rank has beyond the typical one makes that rank late
        share = typical(times_us) / measures.step_us * (1.0 if outside is None else outside.in_turn)
    if share < (MIN_SHARE if alone else WARNING_SHARE):
        return
    facts = measures.job.ranks[worst]
    at = Counter(one.at for one in facts.sidecar.evaluations if one.at).most_common(1)
    line = at[0][0] if at else line_that_evaluates(facts, evaluating(facts))
    where = measures.whom(numbers) + (" alone" if alone else "")
    lost_us = share * measures.step_us
    yield Candidate(
        id=RULE.id,
        summary=f"evaluation takes {format_share(share)} of the time on {where}" + (f", in {line}" if line else ""),
        ranks=numbers,
        lost_us=lost_us,
        basis=Basis.TIMED if outside is not None else Basis.RECORDED,
        evidence=(seen,),
        fixes=(shared_evaluation(line) if alone else _less(line),),
        band=0.25 if alone else 0.5,  # of what all ranks do a part is wanted; for one alone all others wait
        times_us=tuple(times_us.tolist()),
        is_bound=not alone,
    )


def _seen_on_one_rank(measures: Measures) -> Iterator[Candidate]:
    """Candidate for one rank that alone evaluates again and again, by samples of the whole run: in a function of such a
    name, or with the model called outside its steps. What the traced steps hold is host.checkpoint's.
    """
    if measures.host_spans_us["checkpoint"].any():
        return
    saving = seen_alone([seen_saving(facts) for facts in measures.job.ranks])
    evaluating = seen_alone([seen_evaluating(facts) for facts in measures.job.ranks])
    named = [one for one in (saving,) if one is not None and EVALUATES.search(one[1].line)]
    alone = max((*named, *([evaluating] if evaluating else [])), key=lambda one: one[1].share, default=None)
    if alone is not None:
        line = alone[1].line
        yield over_the_samples(measures, RULE.id, *alone, f"evaluating in {line} takes", shared_evaluation(line))


def _called_beside(measures: Measures) -> Iterator[Candidate]:
    """All ranks call a model beside the step's passes: no `eval()` tells its purpose."""
    seen = called_beside(measures)
    timed = None if seen is None else script_now_and_then(measures)
    if seen is None or (timed is not None and timed.lost_us >= MOST_SHARE * seen.lost_us):  # the same time
        return
    worst = int(np.argmax(seen.times_us))
    line = line_that_evaluates(measures.job.ranks[worst], intervals.EMPTY)
    takes = f"takes {format_share(seen.lost_us / measures.step_us)} of the time" + (f", in {line}" if line else "")
    # A teacher or a rollout needs the batch, or makes it: what ends before a batch is fetched serves neither.
    between_us = [intervals.length(after_update(facts)) / 1e3 / len(facts.steps) for facts in measures.job.ranks]
    precedes = typical(np.array(between_us)) >= MOST_SHARE * typical(seen.times_us)
    when = "after the optimizer's step" if precedes else "beside the training passes"
    who = ", on one rank at a time," if seen.in_turn else ""
    fix = shared_evaluation(line) if seen.in_turn else _less(line)
    # A teacher or a target network is wanted whole, by all ranks: only the user knows the purpose.
    band = 1 / (2 * len(measures.job.ranks) - 1) if seen.in_turn else 0.5 if precedes else 1.0
    yield Candidate(
        id=RULE.id,
        summary=f"a model called {when}{who} {takes}",
        lost_us=seen.lost_us,
        basis=Basis.TIMED if seen.in_turn else Basis.DEDUCED,
        evidence=(Evidence(f"{seen.called:.0f} of {seen.every:.0f} samples of all ranks are in it"),),
        fixes=(replace(fix, alters=Alters.CHORE),),
        band=band,
        times_us=tuple(seen.times_us.tolist()),
        is_bound=True,
    )


def shared_evaluation(line: str) -> Fix:
    """The fix for evaluating on some ranks while the others wait."""
    return Fix(
        setting=line or "evaluation",
        suggested="evaluate on all ranks at once (sharded), less often, or in a separate job",
        patch="sampler = DistributedSampler(validation, shuffle=False)  # each rank its part; then all_reduce the sums",
        why="ranks that do not evaluate wait for those that do in the next collective",
        source="torch.utils.data.distributed.DistributedSampler documentation",
    )


def _less(line: str) -> Fix:
    return Fix(
        setting=line or "evaluation",
        suggested="less often, on fewer batches, under torch.inference_mode(), or in a separate job",
        patch="if step % N == 0:\n    with torch.inference_mode(): ...",
        why="nothing is trained meanwhile",
        source="torch.autograd.grad_mode.inference_mode documentation",
    )


RULE = Rule(HOST_EVALUATION, "Evaluation takes a part of the training", detect, bound="host")

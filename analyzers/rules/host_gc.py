"""Garbage collection stops ranks at different moments.

What it detects: Python collection pauses inside steps.
Why it costs: a pause on one rank delays all ranks at the next collective. With N ranks that pause in different steps,
nearly every step is hit.
Who: collections that the interpreter starts come on every rank, now here, now there. A rank calls them, and is named,
where it alone has them more often than chance: over the whole run, or in the traced steps of a short one.
How the gain is priced: the run is replayed without the pauses. Where all of them fall outside the traced steps, and on
CPU ranks, which no queue of a device hides them from: their share of the run's time as the capture recorded it, on the
rank that lost most, and on all ranks that pause in turn.
How to fix: collect on all ranks at the same step, every N steps, and freeze long-lived objects.
Limits: pauses are seen where the profiler records them or ddprof captured the run. Where neither names them, hosts may
pause once in a step, in few steps and on another rank each time. They are said to do so as collections make them.
Sources: OSDI'25 section 5.4 (12.6 % at 128 ranks); torchtitan's GarbageCollection (every 1,000 steps).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.pauses_in_turn import PausesInTurn, pauses_in_turn
from ddprof.analyzers.job.waiting.lateness import chance_of_most
from ddprof.analyzers.job.whole_run.pauses import is_timed, worst_pauses
from ddprof.analyzers.rules.evidence.over_the_run import MIN_SHARE, is_told_by_the_run, over_the_run
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_span, occurrences, run_evidence
from ddprof.finding_ids import HOST_GC
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.significance import MAX_CHANCE
from ddprof.units import format_us

PATCH = """import gc
gc.disable(); gc.freeze()
if step % 1000 == 0:
    gc.collect()  # on every rank at the same step"""

FIX = Fix(
    setting="garbage collection",
    current="automatic",
    suggested="disabled, with a collection on all ranks every 1000 steps",
    patch=PATCH,
    applies=(("gc_interval", 1000),),
    why="when ranks collect at different times, every rank waits for each collection",
    source="torchtitan/tools/utils.py GarbageCollection; OSDI'25 section 5.4",
)
CALLED = Fix(
    setting="calls of gc.collect()",
    current="by the script, which has switched automatic collection off",
    suggested="on all ranks at the same step, every 1000 steps",
    patch="if step % 1000 == 0:\n    gc.collect()  # on every rank at the same step",
    why="when ranks collect at different times, every rank waits for each collection",
    source="torchtitan/tools/utils.py GarbageCollection; OSDI'25 section 5.4",
)
FEWEST_TIMES = 2  # over the run: one collection says nothing of how often more come


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find collections inside steps, or over the whole run."""
    pauses = measures.host_spans_us["gc"]
    outside = worst_pauses(measures.job.ranks, lambda sidecar: sidecar.gc)
    line = _called_at(measures)
    if outside is not None and is_told_by_the_run(measures, outside, pauses) and outside.count >= FEWEST_TIMES:
        words, fix = ("Python garbage collection takes", _in_line(line)), _fix(measures, line)
        is_chance = _is_chance(measures, outside.count, line)
        yield over_the_run(RULE.id, words, measures, outside, "collections", fix, is_chance)
        return
    if not pauses.any():
        if not is_timed(measures.job.ranks) and (unnamed := pauses_in_turn(measures.job)) is not None:
            yield _unnamed(unnamed)
        return
    shares = pauses / measures.step_us if outside is None else np.array(outside.shares)
    count = _traced(measures) if outside is None else outside.count
    numbers = () if _is_chance(measures, count, line) else measures.theirs(shares)
    worst = int(np.argmax(shares if numbers else pauses))
    seen = occurrences(measures, worst, "gc")
    if seen.is_once and is_timed(measures.job.ranks) and (outside is None or outside.share < MIN_SHARE):
        return  # one collection, and the run has hardly any other
    cost_us = float(measures.cause_us("gc").mean())
    yield Candidate(
        id=RULE.id,
        summary="Python garbage collection pauses "
        + ("the ranks" if len(pauses) > 1 and not numbers else measures.whom(numbers))
        + _in_line(line),
        ranks=numbers,
        lost_us=cost_us + charged_us(measures, [worst]) if numbers else cost_us,
        changes=(Change("remove_host", numbers, target="gc"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"collections take {format_us(float(pauses[worst]))} per step", measures.job.rank_ids[worst]),
            *seen.evidence,
            *largest_span(measures, worst, "gc"),
            *(() if outside is None else (run_evidence(measures, outside, "collections"),)),
        ),
        fixes=(_fix(measures, line),),
        times_us=tuple(measures.step_us * shares) if numbers else (),
    )


def _unnamed(pauses: PausesInTurn) -> Candidate:
    """Pauses that come as collections do, in a trace that has no event for them."""
    is_pause = pauses.longest_ns > 0
    usual = format_us(float(np.median(pauses.longest_ns[is_pause])) / 1e3)
    hit, steps = int(is_pause.any(axis=0).sum()), is_pause.shape[1]
    return Candidate(
        id=RULE.id,
        summary=f"hosts pause in turn, as Python's garbage collection makes them: {pauses.count} times on "
        f"{pauses.ranks} ranks",
        lost_us=pauses.cost_us,
        basis=Basis.DEDUCED,
        evidence=(
            Evidence(f"once in a step, {usual} each, in {hit} of {steps} steps; the others wait"),
            Evidence("no event names them: `ddprof run` records collections; other pauses are told by Python stacks"),
        ),
        fixes=(FIX,),
        band=0.5,
    )


def _is_chance(measures: Measures, count: int, line: str) -> bool:
    """True where so many collections of the interpreter may have hit one rank alone by chance."""
    return not line and chance_of_most(count, count, len(measures.job.ranks)) >= MAX_CHANCE


def _traced(measures: Measures) -> int:
    """Number of collections in the traced steps of all ranks."""
    steps = [len(facts.steps) for facts in measures.job.ranks]
    return round(float(measures.host_counts["gc"] @ np.array(steps)))


def _called_at(measures: Measures) -> str:
    """The script line that calls most of the collections, by time; "" where the interpreter starts them, as it does
    before the first step while modules are imported.
    """
    lines = Counter[str]()
    for sidecar in (facts.sidecar for facts in measures.job.ranks):
        begun_ns = next((span[0] for step in sidecar.steps if (span := step.span_ns) is not None), 0)
        for pause in sidecar.gc:
            lines[pause.at] += pause.dur_ns * (pause.start_ns >= begun_ns)
    return max(lines, key=lambda line: lines[line], default="")


def _fix(measures: Measures, line: str) -> Fix:
    """The fix for collections started by the interpreter, or called by the script."""
    if line:
        return replace(CALLED, setting=f"gc.collect() in {line}", current="called by the script")
    pauses = [pause for rank in measures.job.ranks for pause in rank.sidecar.gc]
    return CALLED if pauses and all(pause.was_called for pause in pauses) else FIX


def _in_line(line: str) -> str:
    return f", called in {line}" if line else ""


RULE = Rule(HOST_GC, "Garbage collection pauses ranks", detect, bound="host", tells_line=True)

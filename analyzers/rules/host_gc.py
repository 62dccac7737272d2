"""Garbage collection stops ranks at different moments.

What it detects: Python collection pauses inside steps.
Why it costs: a pause on one rank delays all ranks at the next collective. With N ranks that pause in different steps,
nearly every step is hit.
Who: collections that the interpreter starts come on every rank, now here, now there. One rank that alone has them over
the whole run calls them, and is named.
How the gain is priced: the run is replayed without the pauses. Where all of them fall outside the traced steps: their
share of the run's time as the capture recorded it, on the rank that lost most.
How to fix: collect on all ranks at the same step, every N steps, and freeze long-lived objects.
Limits: pauses are seen where the profiler records them or ddprof captured the run.
Sources: OSDI'25 section 5.4 (12.6 % at 128 ranks); torchtitan's GarbageCollection (every 1,000 steps).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.waiting.lateness import MAX_CHANCE, chance_of_most
from ddprof.analyzers.job.whole_run.pauses import Pauses, worst_pauses
from ddprof.analyzers.rules.evidence.occurrences import occurrences
from ddprof.analyzers.rules.evidence.over_the_run import MIN_SHARE, over_the_run
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_span, run_evidence
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_share, format_us

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
    why="collections at different moments make every rank wait for each of them in turn",
    source="torchtitan/tools/utils.py GarbageCollection; OSDI'25 section 5.4",
)
CALLED = Fix(
    setting="calls of gc.collect()",
    current="by the script, which has switched automatic collection off",
    suggested="on all ranks at the same step, every 1000 steps",
    patch="if step % 1000 == 0:\n    gc.collect()  # on every rank at the same step",
    why="collections at different moments make every rank wait for each of them in turn",
    source="torchtitan/tools/utils.py GarbageCollection; OSDI'25 section 5.4",
)
FEWEST_TIMES = 2  # over the run: one collection says nothing of how often more come


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Collections inside steps."""
    pauses = measures.host_spans_us["gc"]
    outside = worst_pauses(measures.job.ranks, lambda sidecar: sidecar.gc)
    if not pauses.any():
        if outside is not None and outside.share >= MIN_SHARE and outside.count >= FEWEST_TIMES:
            yield _over_the_run(measures, outside)
        return
    position = _whose(measures, outside)
    worst = int(np.argmax(pauses)) if position is None else position
    numbers = () if position is None else measures.ranks([position])
    cost_us = float(measures.cause_us("gc").mean())
    yield Candidate(
        id=RULE.id,
        summary="Python garbage collection pauses "
        + ("the ranks" if len(pauses) > 1 and not numbers else measures.whom(numbers)),
        ranks=numbers,
        lost_us=cost_us if position is None else cost_us + charged_us(measures, [position]),
        changes=(Change("remove_host", numbers, target="gc"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"{format_us(float(pauses[worst]))} per step", measures.job.rank_ids[worst]),
            *occurrences(measures, worst, "gc").evidence,
            *largest_span(measures, worst, "gc"),
            *(() if outside is None else (run_evidence(measures, outside, "collections"),)),
        ),
        fixes=(_fix(measures),),
    )


def _whose(measures: Measures, outside: Pauses | None) -> int | None:
    """The position of the rank that alone collects over the whole run, more often than chance explains."""
    ranks = len(measures.job.ranks)
    if ranks < 2 or outside is None or not outside.is_alone:
        return None
    return outside.position if chance_of_most(outside.count, outside.count, ranks) < MAX_CHANCE else None


def _fix(measures: Measures) -> Fix:
    """Of collections that the interpreter starts, or of those that the script calls where nothing else starts any."""
    pauses = [pause for rank in measures.job.ranks for pause in rank.sidecar.gc]
    return CALLED if pauses and all(pause.was_called for pause in pauses) else FIX


def _over_the_run(measures: Measures, outside: Pauses) -> Candidate:
    """No collection fell into the traced steps, but the run as a whole has them."""
    summary = (
        f"Python garbage collection takes {format_share(outside.share)} of the run on rank "
        f"{measures.job.rank_ids[outside.position]}, outside the traced steps"
    )
    position = _whose(measures, outside)
    numbers = () if position is None else measures.ranks([position])
    return over_the_run(RULE.id, summary, measures, outside, "collections", _fix(measures), numbers)


RULE = Rule("host.gc", "Garbage collection pauses ranks", detect, bound="host", tells_line=True)

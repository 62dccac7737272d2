"""torch.compile compiles again and again.

What it detects: the compiler works in most of the traced steps, by its own records (`dynamo_timed` ranges) or by first
runs of regions that take far longer than later ones.
Why it costs: a function is compiled anew for each size, each Python value and each global that its guards do not allow,
for milliseconds to minutes, and nothing is launched meanwhile. Beyond `recompile_limit` (8) it runs uncompiled.
How the gain is priced: the run is replayed without the host time in the compiler.
How to fix: sizes that change marked as dynamic, or padded to a few; no Python number that changes as an argument. The
guard that fails is named by `TORCH_LOGS=recompiles`.
Limits: a recording of a job's first steps holds what compiles only once. Steps that alone compile are left out of the
step, and are said in a data note.
Sources: PyTorch torch.compiler documentation: recompilation, dynamic shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.compiling import compiled_line, compiling, compiling_by_step_ns, compiling_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.spans import at
from ddprof.finding_ids import HOST_RECOMPILATION
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_share, format_us

MIN_TIMES = 2  # steps: what compiles once compiles for the first time
MOST_SHARE = 0.5  # of the steps; a job that warms up compiles in fewer


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find ranks that compile in most steps."""
    ranks = measures.job.ranks
    often = np.array([np.count_nonzero(compiling_by_step_ns(facts)) for facts in ranks])
    again = np.array(
        [n >= MIN_TIMES and n > MOST_SHARE * len(facts.steps) for n, facts in zip(often, ranks, strict=True)]
    )
    times_us = np.where(again, [compiling_us(facts) for facts in ranks], 0.0)
    if not times_us.any():
        return
    numbers = measures.with_any(times_us)
    worst = int(np.argmax(times_us))
    facts, rank = ranks[worst], measures.job.rank_ids[worst]
    line = compiled_line(facts)
    share = format_share(float(times_us[worst]) / measures.step_us)
    start, end = compiling(facts)
    longest = int(np.argmax(end - start))
    words = f"longest: {format_us((end[longest] - start[longest]) / 1e3)}"
    yield Candidate(
        id=RULE.id,
        summary=f"torch.compile compiles again in {often[worst]} of {len(facts.steps)} steps: {share} of the time of "
        + measures.whom(numbers)
        + (f", at {line}" if line else ""),
        ranks=numbers,
        lost_us=float(times_us.mean()),
        changes=(Change("no_compiling", numbers),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"the compiler works for {format_us(float(times_us[worst]))} per step", rank),
            at(measures, worst, int(start[longest]), int(end[longest]), words, "compiling"),
        ),
        fixes=(_fix(line),),
        times_us=tuple(times_us.tolist()),
    )


def _fix(line: str) -> Fix:
    return Fix(
        setting="sizes and arguments of compiled functions" + (f" at {line}" if line else ""),
        suggested="few sizes, or sizes marked as dynamic; no Python numbers that change",
        patch="torch._dynamo.mark_dynamic(batch, 1)  # or torch.compile(model, dynamic=True), or pad to a few lengths",
        why="each size or value that a guard does not allow is compiled anew; TORCH_LOGS=recompiles names the guard",
        source="PyTorch torch.compiler documentation: recompilation",
    )


RULE = Rule(HOST_RECOMPILATION, "torch.compile compiles again in each step", detect, bound="host")

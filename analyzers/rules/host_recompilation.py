"""torch.compile compiles again and again.

What it detects: the compiler works in most of the traced steps. Its own records show that (`dynamo_timed` ranges), or
first runs of regions that take far longer than later ones.
Why it costs: a function is compiled anew for each size, each Python value and each global that its guards do not allow.
That takes milliseconds to minutes, and nothing is launched meanwhile. Beyond `recompile_limit` (8) it runs uncompiled.
How the gain is priced: the run is replayed without the host time in the compiler.
How to fix: sizes that change marked as dynamic, or padded to a few; no Python number that changes as an argument. The
guard that fails is named by `TORCH_LOGS=recompiles`.
Limits: a recording of a job's first steps holds what compiles only once. Steps that alone compile are left out of the
step, and are said in a data note.
Sources: PyTorch torch.compiler documentation: recompilation, dynamic shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.tree import call_tree, written
from ddprof.analyzers.job.host_costs import COMPILING, part_by_step_ns, part_of, part_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.beside import run_samples
from ddprof.analyzers.job.script.idle import MIN_TIMES, MOST_SHARE
from ddprof.analyzers.job.script.lines import lines_of
from ddprof.analyzers.rules.evidence.spans import at
from ddprof.finding_ids import HOST_RECOMPILATION
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_share, format_us

_COMPILER = re.compile(r"^torch/_(?:dynamo/convert_frame|inductor)\b")


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find ranks that compile in most steps."""
    ranks = measures.job.ranks
    often = [np.count_nonzero(part_by_step_ns(facts, COMPILING)) for facts in ranks]  # steps
    times_us = np.array(
        [
            part_us(facts, COMPILING) * (count >= MIN_TIMES and count > MOST_SHARE * len(facts.steps))
            for count, facts in zip(often, ranks, strict=True)
        ]
    )
    if not times_us.any():
        return
    numbers = measures.with_any(times_us)
    worst = int(np.argmax(times_us))
    facts, rank = ranks[worst], measures.job.rank_ids[worst]
    line = _compiled(facts)
    share = format_share(float(times_us[worst]) / measures.step_us)
    start, end = intervals.intersect(part_of(facts, COMPILING), facts.marks)
    longest = int(np.argmax(end - start))
    words = f"longest: {format_us((end[longest] - start[longest]) / 1e3)}"
    yield Candidate(
        id=RULE.id,
        summary=f"torch.compile compiles again in {often[worst]} of {len(facts.steps)} steps: {share} of the time of "
        + measures.whom(numbers)
        + (f", at {line}" if line else ""),
        ranks=numbers,
        lost_us=float(times_us.mean()),
        changes=(Change("no_compiling", numbers, (0.0,), COMPILING),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"the compiler works for {format_us(float(times_us[worst]))} per step", rank),
            at(measures, worst, int(start[longest]), int(end[longest]), words, "compiling"),
        ),
        fixes=(_fix(line),),
        times_us=tuple(times_us.tolist()),
    )


def _compiled(facts: RankFacts) -> str:
    """The script line from which samples of the run saw most compiling; "" where they saw none."""
    tree = call_tree(facts)
    in_compiler = tree.within(tree.matching(_COMPILER)) & (tree.folded >= 0)
    line = next(iter(lines_of(facts, run_samples(facts) * in_compiler)), None)
    return "" if line is None else written(line.file, line.line, line.function)


def _fix(line: str) -> Fix:
    return Fix(
        setting="sizes and arguments of compiled functions" + (f" at {line}" if line else ""),
        suggested="few sizes, or sizes marked as dynamic; no Python numbers that change",
        patch="torch._dynamo.mark_dynamic(batch, 1)  # or torch.compile(model, dynamic=True), or pad to a few lengths",
        why="each size or value that a guard does not allow is compiled anew; TORCH_LOGS=recompiles names the guard",
        source="PyTorch torch.compiler documentation: recompilation",
    )


RULE = Rule(HOST_RECOMPILATION, "torch.compile compiles again in each step", detect, bound="host")

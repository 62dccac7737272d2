"""Time in which torch.compile compiles inside the steps of a rank."""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Once, RankFacts
from ddprof.analyzers.facts.script.tree import call_tree, written
from ddprof.analyzers.job.script.beside import run_samples
from ddprof.analyzers.job.script.lines import lines_of
from ddprof.intervals import Intervals
from ddprof.tables import Array

_COMPILER = re.compile(r"^torch/_(?:dynamo/convert_frame|inductor)\b")


def compiling(facts: RankFacts) -> Intervals:
    """Intervals of the host in the compiler, as its own records or first runs far longer than later ones tell."""
    return intervals.union(*facts.once.take(facts.once["kind"] == Once.FIRST_RUN).bounds)


def compiling_by_step_ns(facts: RankFacts) -> Array:
    """Time of the host in the compiler in each step, shape (steps,)."""
    return intervals.overlap(compiling(facts), *facts.marks)


def compiling_us(facts: RankFacts) -> float:
    """Time of the host in the compiler, us per step."""
    return float(compiling_by_step_ns(facts).sum()) / 1e3 / len(facts.steps)


def compiled_line(facts: RankFacts) -> str:
    """The script line from which samples of the run saw most compiling; "" where they saw none."""
    tree = call_tree(facts)
    in_compiler = tree.within(tree.matching(_COMPILER)) & (tree.folded >= 0)
    seen = np.zeros(len(tree))
    for stack, samples in run_samples(facts).items():
        seen[stack] = samples * in_compiler[stack]
    line = next(iter(lines_of(facts, seen)), None)
    return "" if line is None else written(line.file, line.line, line.function)

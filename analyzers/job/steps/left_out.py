"""Words on the steps left out of the steady ones, and the mean step with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import LeftOut
from ddprof.analyzers.job.steps.steady import APART, MOSTLY
from ddprof.analyzers.job.whole_run.unprofiled_steps import timed_step_ns
from ddprof.model import HealthNote
from ddprof.units import format_us


def none_is_steady(ranks: Sequence[RankFacts], left_out: Sequence[LeftOut]) -> bool:
    """True where only steps with one-off work remain, judged by those that some ranks lack."""
    numbers = [step.number for step in left_out]
    return bool(numbers) and all(np.isin(facts.steps["index"], numbers).all() for facts in ranks)


def left_out_note(ranks: Sequence[RankFacts], left_out: Sequence[LeftOut], step_ns: int, kept: int) -> list[HealthNote]:
    """Note on the steps left out, with the mean step of the whole run, or what it is if they recur. `kept`: other
    steps of `step_ns`.
    """
    if not left_out:
        return []
    took = "; ".join(f"step {step.number} took {format_us(step.wall_ns / 1e3)} ({step.why})" for step in left_out)
    effect = f"not counted in the mean step of {format_us(step_ns / 1e3)}"
    if any(step.why.startswith(MOSTLY) for step in left_out):
        mean_ns, is_timed = mean_step_ns(ranks, left_out, step_ns, kept)
        mean = format_us(mean_ns / 1e3)
        if is_timed:
            effect += f"; by the timers of the whole run the mean step takes {mean}"
        else:
            effect += f"; if it comes again as often, a step takes {mean}: record more steps to tell"
    is_all = none_is_steady(ranks, left_out)
    return [HealthNote(took, "no other step is left to judge" if is_all else effect, "info")]


def mean_step_ns(
    ranks: Sequence[RankFacts], left_out: Sequence[LeftOut], step_ns: float, kept: int
) -> tuple[float, bool]:
    """The mean step, ns, and whether timers of the whole run say so; else it is the mean with those left out that may
    come again. `kept`: steps of `step_ns` that are left.
    """
    timed_ns = timed_step_ns(ranks)
    if timed_ns is not None:
        return timed_ns, True
    again = [step.wall_ns for step in left_out if step.why.startswith((MOSTLY, APART))]
    return (step_ns * kept + sum(again)) / (kept + len(again)), False

"""What a rank's memory is at its fullest, as far as totals over time tell: held before the step, added in a phase.

Which tensor is a parameter, a gradient or a state of the optimizer is not in totals, and is not guessed. Of recordings
with more totals than the facts keep (summary.CURVE_POINTS) each stands for the largest of some that follow one another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array

PHASES = ("forward", "backward", "optimizer", "elsewhere")


@dataclass(frozen=True)
class PeakParts:
    """Bytes of tensors at the fullest moment inside the steps: `before`, when the step began, and what each of PHASES
    added net until then; they sum to `peak`. `step`: position; `phase`: which the moment lies in.
    """

    peak: int
    step: int
    at_ns: int
    phase: str
    before: int
    grown: tuple[int, ...]


def peak_parts(facts: RankFacts) -> PeakParts | None:
    """None where totals over time, steps or phases were not recorded."""
    at, held = _curve(facts)
    spans = _phases(facts)
    inside = facts.is_issued_in_steps(at)
    if not inside.any() or not any(len(start) for start, _ in spans):
        return None
    top = int(np.flatnonzero(inside)[held[inside].argmax()])
    step = int(np.searchsorted(facts.steps["mark_ns"], at[top], side="right")) - 1
    first = int(np.searchsorted(at, facts.steps["mark_ns"][step]))
    begin = max(0, first - 1)  # what was held when the step began: the last total before it, or its first
    change = np.diff(held[begin : top + 1])
    phase = np.full(len(at), len(spans))
    for number, span in reversed(list(enumerate(spans))):
        phase[intervals.contains(span, at)] = number
    grown = np.bincount(phase[begin + 1 : top + 1], weights=change, minlength=len(PHASES))
    return PeakParts(
        int(held[top]),
        step,
        int(at[top]),
        PHASES[int(phase[top])],
        int(held[begin]),
        tuple(int(value) for value in grown),
    )


def _curve(facts: RankFacts) -> tuple[Array, Array]:
    """When totals were recorded, ns, and the bytes of tensors then."""
    known = facts.memory.get("curve") or {}
    at = np.array(known.get("at_ns") or [], np.int64)
    held = np.array([NULL if value is None else value for value in known.get("allocated_bytes") or []], np.int64)
    return at[held != NULL], held[held != NULL]


def _phases(facts: RankFacts) -> list[Intervals]:
    backward = facts.phase_time(Phase.BACKWARD)
    if not len(backward[0]):
        backward = intervals.union(*facts.engine_passes.bounds)
    return [facts.phase_time(Phase.FORWARD), backward, facts.phase_time(Phase.OPTIMIZER)]

"""Collectives that the script calls outside the traced steps alone, by the step timers and the log of its last calls.

A rank that others wait for is short in a collective: what no rank is without in a step is the collective's own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.host_time import computes
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, common_steps, unprofiled_steps
from ddprof.sidecar.calls import CallingLine

MIN_OFTEN = 0.5  # of the steps since the first that has them: what comes more rarely goes with saving or evaluating


@dataclass(frozen=True)
class CalledOutside:
    """`lines`: of one rank, most calls first, each with calls per step. `cost`: share of the mean step that every rank
    spends in them; in `often` of `steps` since the first that has any."""

    lines: tuple[tuple[CallingLine, float], ...]
    cost: float
    often: int
    steps: int


def called_outside(ranks: Sequence[RankFacts]) -> CalledOutside | None:
    """Collectives that begin after the traced steps; None where few steps were timed or the calls come rarely."""
    if not ranks or not all(computes(facts) for facts in ranks):
        return None
    outside = common_steps(ranks)
    traced = [[step.collective_ns for step in facts.sidecar.steps if step.profiled] for facts in ranks]
    lines = next((found for facts in ranks if (found := _new_lines(facts))), ())
    if len(outside[0]) < MIN_STEPS or not all(traced) or not lines:
        return None
    least = np.array([[step.collective_ns for step in own] for own in outside], float).min(axis=0)
    more = np.maximum(0.0, least - min(float(np.mean(own)) for own in traced))
    if not more.any():
        return None
    since = more[int(np.argmax(more > 0)) :]
    often = int((since > 0).sum())
    if often < MIN_OFTEN * len(since):
        return None
    mean_ns = np.mean([step.length_ns for facts in ranks for step in unprofiled_steps(facts)])
    return CalledOutside(lines, float(more.mean() / mean_ns), often, len(since))


def _new_lines(facts: RankFacts) -> tuple[tuple[CallingLine, float], ...]:
    """Lines of a rank that call collectives after its traced steps and not in them, with calls per step."""
    known = {(call.op, call.file, call.line) for call in facts.sidecar.window_calls}
    begun = np.array([step.start_ns or 0 for step in facts.sidecar.steps])
    until = max((window.end_ns or 0 for window in facts.sidecar.windows), default=0)
    found = []
    for line in facts.sidecar.last_calls:
        steps = int(((begun > line.from_ns) & (begun <= line.to_ns)).sum()) + 1
        if (line.op, line.file, line.line) not in known and line.from_ns > until:
            found.append((line, line.calls / steps))
    return tuple(sorted(found, key=lambda pair: -pair[0].calls))

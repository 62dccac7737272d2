"""Collectives that the script calls outside the traced steps alone, by the step timers and the log of its last calls.

A rank that others wait for is short in a collective: what no rank is without is the collective's own time. Where the
time of all collectives scatters by more than these take, the log has the time of theirs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.calls import MEETING_CALLS
from ddprof.analyzers.facts.work import computes
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, average_ns, common_steps, typical_steps
from ddprof.sidecar import StepTimes
from ddprof.sidecar.calls import CallingLine

FEWEST = 3  # steps with a call: once or twice is no habit
MIN_OFTEN = 0.5  # of the steps since the first that has them: what comes more rarely goes with saving or evaluating
_Lines: TypeAlias = tuple[tuple[CallingLine, float], ...]  # lines of a rank that call, with calls per step


class CalledOutside(Struct, frozen=True):
    """`lines`: of one rank, most calls first, each with calls per step. `cost`: share of the mean step that every rank
    spends in them; in `often` of `steps` since the first that has any, or of the last ones."""

    lines: _Lines
    cost: float
    often: int
    steps: int


def calling_us(ranks: Sequence[RankFacts]) -> float | None:
    """Time in all collectives that the script calls, waits included, us per typical step outside the trace, of the rank
    with most of it: no more comes back without them. None where a rank computes on a device, or little was timed.
    """
    if not all(computes(facts) for facts in ranks):
        return None
    each_ns = [average_ns(typical_steps(facts), attrgetter("collective_ns")) for facts in ranks]
    most_ns = max((ns for ns in each_ns if ns is not None), default=0.0)
    return most_ns / 1e3 if most_ns else None


def called_outside(ranks: Sequence[RankFacts]) -> CalledOutside | None:
    """Collectives that begin after the traced steps; None where few steps were timed or the calls come rarely."""
    if not ranks or not all(computes(facts) for facts in ranks):
        return None
    outside = common_steps(ranks)
    each = [_new_lines(facts) for facts in ranks]
    if len(outside[0]) < MIN_STEPS or not any(each):
        return None
    mean_ns = float(np.mean([step.length_ns or 0 for steps in outside for step in steps]))
    timed = _by_timers(ranks, outside, next(filter(None, each)), mean_ns)
    logged = _by_log(ranks, outside, each, mean_ns)
    return max((one for one in (timed, logged) if one is not None), key=lambda one: one.cost, default=None)


def _by_timers(
    ranks: Sequence[RankFacts], outside: Sequence[Sequence[StepTimes]], lines: _Lines, mean_ns: float
) -> CalledOutside | None:
    """The calls by the time that each step spends in all collectives, beyond the traced steps'."""
    traced = [[step.collective_ns for step in facts.sidecar.steps if step.profiled] for facts in ranks]
    if not all(traced):
        return None
    least = np.array([[step.collective_ns for step in steps] for steps in outside], float).min(axis=0)
    more = np.maximum(0.0, least - min(float(np.mean(steps)) for steps in traced))
    if not more.any():
        return None
    since = more[int(np.argmax(more > 0)) :]
    often = int((since > 0).sum())
    if often < MIN_OFTEN * len(since):
        return None
    return CalledOutside(lines, float(more.mean() / mean_ns), often, len(since))


def _by_log(
    ranks: Sequence[RankFacts], outside: Sequence[Sequence[StepTimes]], each: Sequence[_Lines], mean_ns: float
) -> CalledOutside | None:
    """The calls by the time that they took, on the rank that is held least. Where the log begins with them, they began
    right after the traced steps."""
    taken = [[line.taken_ns for line, _ in lines] for lines in each]
    if not all(each) or len({lines[0][0].op for lines in each}) > 1 or any(None in taken_ns for taken_ns in taken):
        return None
    begun, line = np.array([step.start_ns or 0 for step in outside[0]]), each[0][0][0]
    logged = int(((begun > line.from_ns) & (begun <= line.to_ns)).sum()) + 1
    if logged < MIN_STEPS or line.steps < MIN_OFTEN * logged:
        return None
    opens = min(call.from_ns for call in ranks[0].sidecar.last_calls)
    since = line.from_ns if ((begun > opens) & (begun <= line.from_ns)).any() else _traced_until(ranks[0])
    often = int((begun > since).sum()) / len(begun)
    held_ns = min(sum(filter(None, taken_ns)) for taken_ns in taken) / logged
    return CalledOutside(each[0], min(1.0, often * held_ns / mean_ns), min(line.steps, logged), logged)


def _traced_until(facts: RankFacts) -> int:
    return max((window.end_ns or 0 for window in facts.sidecar.windows), default=0)


def _new_lines(facts: RankFacts) -> _Lines:
    """Lines of a rank that call collectives after its traced steps and not in them, with calls per step. What sends a
    Python object calls collectives of tensors itself, within its own time.
    """
    objects = {(call.file, call.line) for call in facts.sidecar.last_calls if call.op in MEETING_CALLS}
    traced = {(call.op, call.file, call.line) for call in facts.sidecar.window_calls}
    begun = np.array([step.start_ns or 0 for step in facts.sidecar.steps])
    until = _traced_until(facts)
    lines = []
    for line in facts.sidecar.last_calls:
        steps = int(((begun > line.from_ns) & (begun <= line.to_ns)).sum()) + 1
        is_within = line.op not in MEETING_CALLS and (line.file, line.line) in objects
        # What comes once, such as a barrier after the last step, is none of what each step spends.
        is_often = line.steps >= max(FEWEST, MIN_OFTEN * ((begun > line.from_ns).sum() + 1))
        if (line.op, line.file, line.line) not in traced and line.from_ns > until and is_often and not is_within:
            lines.append((line, line.calls / steps))
    return tuple(sorted(lines, key=lambda pair: -pair[0].calls))

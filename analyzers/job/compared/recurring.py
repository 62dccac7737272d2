"""Whether a long step of a recording comes again in the job, by the timers of the steps that were not traced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, unprofiled_steps
from ddprof.tables import Array

FEWEST_TIMES = 2  # what occurred once outside the recording as well may still be one event
EXPECTED = 0.5  # in a recording of this length: one that holds it then tells more of the job than one without it


def recurring(ranks: Sequence[RankFacts], wall_ns: Array, is_left_out: Array) -> Array:
    """Which steps that are left out are as long as others that recur outside the recording; bool, shape (steps,).

    `wall_ns`: of each traced step on the typical rank. So many of them must be as long, over the run, that a recording
    of as many steps holds one of them by expectation. False throughout where the job's steps were not timed.
    """
    found = np.zeros(len(wall_ns), bool)
    if is_left_out.all() or not is_left_out.any():
        return found
    outside = [np.array([step.length_ns for step in unprofiled_steps(facts)], float) for facts in ranks]
    if any(len(lengths) < MIN_STEPS for lengths in outside):
        return found
    usual_ns = float(np.median(wall_ns[~is_left_out]))
    for step in np.flatnonzero(is_left_out).tolist():
        # Nearer by ratio to this one than to the usual ones; both were longer under the profiler, so few are counted.
        as_long_ns = float(np.sqrt(wall_ns[step] * usual_ns))
        times = [int((lengths > as_long_ns).sum()) for lengths in outside]
        often = float(np.median([count / len(lengths) for count, lengths in zip(times, outside, strict=True)]))
        found[step] = np.median(times) >= FEWEST_TIMES and often * len(wall_ns) >= EXPECTED
    return found

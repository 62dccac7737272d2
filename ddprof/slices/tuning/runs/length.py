"""Lengths of runs: the steps left out at their start, the steps timed, and the number that the job makes by itself."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.errors import NoUsableInput
from ddprof.slices.tuning.runs.evidence import LEAST_STEPS
from ddprof.trials.document import RunPlan, Trial, TrialCandidate

WARM_UP = 10  # steps left out at the start of each run: allocation, compilation, DDP's buckets laid out anew
_MOST_WARM_UP = 64  # steps, however much loaders fetch ahead
_TIMED_AT_LEAST = 2 * LEAST_STEPS  # before more are left out at the start of a short job


def shortened(made: Trial) -> RunPlan:
    """The plan for a job that ends by itself before the planned steps: one step fewer than it makes, so that all its
    runs are ended alike. Raises NoUsableInput where too few remain.
    """
    warm_up = min(WARM_UP, made.steps // 3)
    timed = made.steps - 1 - warm_up
    if timed < LEAST_STEPS:
        raise NoUsableInput(f"the command makes {made.steps} steps: too few to compare (give it 15 or more)")
    return RunPlan(warm_up, timed, made.steps)


def with_warm_up(plan: RunPlan, candidates: Sequence[TrialCandidate]) -> RunPlan:
    """The plan without the steps that loaders feed from batches fetched during the start."""
    deepest = 0
    for candidate in candidates:
        workers, each = candidate.values.get("num_workers", 0), candidate.values.get("prefetch_factor", 2)
        deepest = max(deepest, int(workers) * int(each))
    longer = min(max(plan.warm_up, deepest + 2), _MOST_WARM_UP)
    if plan.most is None:
        return RunPlan(longer, plan.timed)
    longer = min(longer, max(plan.warm_up, plan.last - _TIMED_AT_LEAST))
    return RunPlan(longer, plan.last - longer, plan.most)

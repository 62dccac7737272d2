"""Limits of the traces: some formats record only communication, some captures lost the device's events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Once, RankFacts
from ddprof.analyzers.facts.stepping.start_up import WORTH_SAYING, start_up
from ddprof.analyzers.facts.work import compute_work, each_computing, is_torn_host, lost_device, may_compute
from ddprof.analyzers.job.model import JobFacts, LeftOut
from ddprof.analyzers.job.steps.steady import APART, MOSTLY
from ddprof.analyzers.job.whole_run.unprofiled_steps import timed_step_ns
from ddprof.derived_once import remembered
from ddprof.model import HealthNote
from ddprof.units import format_share, format_us

# Words on the steps left out of the steady ones, and the mean step with them.


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


MOST = 0.5  # of the recording: what is left is the smaller part, and start-up goes on between its calls
# All steps together: issuing one operation takes a host longer (2 to 10 us, kernel launches on A100 and H100).
LEAST_NS = 10_000
# Operations of a device in a window without steps: a training step of the smallest models issues as many. Fewer in a
# window that is nearly all idle are some first calls, and their idle time is nobody's pace.
FEWEST_OPERATIONS = 100
# In so short a window one preemption is most of it: the least slice that Linux gives another process
# (min_granularity_ns, base_slice_ns) on eight CPUs or more.
SLICE_NS = 3_000_000
COMMUNICATION_ONLY = "the trace records communication only"
NO_WORK_NAMED = "the recording names neither a device's work nor operators of a framework"
NOTHING_COMPUTED = "nothing is computed in the one step that was recorded; record later steps"
ONE_STEP_LEFT = "one step is left of a damaged recording; it may be one-off work, such as a first batch"


@remembered
def out_of_scope(job: JobFacts) -> str | None:
    """Reason why only communication can be judged, in words; None where the job's steps were recorded whole."""
    recorded_ns = max(int((f.steps["mark_end_ns"] - f.steps["mark_ns"]).sum()) for f in job.ranks)
    if recorded_ns < LEAST_NS:
        return f"too little was recorded: {format_us(recorded_ns / 1e3)} in all, less than one kernel launch"
    if all(f.top.get("records") == "communication" for f in job.ranks):
        return COMMUNICATION_ONLY
    if all(lost_device(f, job.ranks) for f in job.ranks):
        kind = job.ranks[0].device.kind
        of_length = " with a length" * any(len(f.device_ops) and f.counts.get("kernels", 1) for f in job.ranks)
        return NO_WORK_NAMED if kind == "unknown" else f"no {kind} kernels{of_length} were recorded"
    if any(map(is_torn_host, job.ranks)):
        return ONE_STEP_LEFT
    return start_up_only(job) or _hardly_computed(job)


def _hardly_computed(job: JobFacts) -> str | None:
    """Reason why a window without steps is no pace; None for others: of few operations that take next to none of it, or
    all of it in one slice of a CPU, or that one pause, which occurred once, parts for most of it; or whose operations
    lie together in next to none of it.
    """
    computing = [each_computing(f) for f in job.ranks]
    if any(f.step_source != "inferred" or len(f.steps) != 1 for f in job.ranks) or not all(
        len(s) for s, _ in computing
    ):
        return None
    operations = max(len(starts_ns) for starts_ns, _ in computing)
    busy_ns = max(float(intervals.overlap(compute_work(f), *f.steps.bounds).sum()) for f in job.ranks)
    together_ns = max(int(ends_ns.max() - starts_ns.min()) for starts_ns, ends_ns in computing)
    wall_ns = max(float((f.steps["end_ns"] - f.steps["start_ns"]).sum()) for f in job.ranks)
    is_once = min(map(_longest_pause_ns, job.ranks)) > MOST * wall_ns
    is_slow_start = is_once or busy_ns < WORTH_SAYING * wall_ns or wall_ns < SLICE_NS
    is_few = operations < FEWEST_OPERATIONS and is_slow_start
    if not is_few and together_ns >= WORTH_SAYING * wall_ns:
        return None
    computed = f"{operations} operations, {format_us(busy_ns / 1e3)} of {format_us(wall_ns / 1e3)}"
    return f"too little was recorded: {computed}; record several steps"


def _longest_pause_ns(facts: RankFacts) -> int:
    """The longest time of the one step between two operations, without start-up."""
    known = intervals.merge(compute_work(facts), start_up(facts.once, facts.steps))
    start_ns, end_ns = intervals.complement(known, *(int(bound[0]) for bound in facts.steps.bounds))
    return int((end_ns - start_ns).max(initial=0))


@remembered
def start_up_only(job: JobFacts) -> str | None:
    """Reason why no part of the job is known to recur (one-off work, or mostly start-up); None where some is."""
    if none_is_steady(job.ranks, job.left_out):
        reasons = "; ".join(f"step {step.number}: {step.why}" for step in job.left_out)
        return f"all that the ranks recorded in common occurred once ({reasons}); record later steps"
    starting_ns, wall_ns = _start_up_ns(job)
    if starting_ns <= MOST * wall_ns or computes_after_start_up(job):
        seen = [facts for facts in job.ranks if not lost_device(facts, job.ranks)]
        return None if any(map(may_compute, seen)) else NOTHING_COMPUTED
    took = f"took {format_us(starting_ns / 1e3)} of {format_us(wall_ns / 1e3)}"
    of_captures = [
        intervals.length(intervals.union(*f.once.bounds_of(f.once["kind"] == Once.CAPTURE))) for f in job.ranks
    ]
    what = "capturing graphs of kernels" if sum(of_captures) > MOST * starting_ns * len(job.ranks) else "first calls"
    return f"only start-up was recorded ({what} {took}); record later steps"


@remembered
def computes_after_start_up(job: JobFacts) -> str:
    """The start-up of a recording of one step that then mostly computes, in words; "" of any other.

    Not where the work is small beside the start-up: a first step is no measure of the next.
    """
    starting_ns, wall_ns = _start_up_ns(job)
    rest_ns = wall_ns - starting_ns
    outside = [intervals.subtract(compute_work(f), start_up(f.once, f.steps)) for f in job.ranks]
    each = [intervals.overlap(work, *f.steps.bounds).sum() for work, f in zip(outside, job.ranks, strict=True)]
    computed_ns = float(sum(each)) / len(job.ranks)
    if starting_ns < WORTH_SAYING * wall_ns or computed_ns <= MOST * max(rest_ns, starting_ns):
        return ""
    share = format_share(min(1.0, computed_ns / rest_ns))
    words = f"after {format_us(starting_ns / 1e3)} of start-up, {share} of the remaining {format_us(rest_ns / 1e3)}"
    return f"{words} is compute"


def _start_up_ns(job: JobFacts) -> tuple[float, float]:
    """Start-up, and all, of a recording of one step, ns on the mean rank."""
    starting = sum(intervals.length(start_up(f.once, f.steps)) for f in job.ranks)
    walls = sum(int((f.steps["mark_end_ns"] - f.steps["mark_ns"]).sum()) for f in job.ranks)
    return starting / len(job.ranks), walls / len(job.ranks)

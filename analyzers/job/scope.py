"""Limits of the traces: some formats record only communication, some captures lost the device's events."""

from __future__ import annotations

from ddprof import intervals
from ddprof.analyzers.facts.stepping.start_up import start_up
from ddprof.analyzers.facts.work import is_torn_host, lost_device, may_compute
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.steps.steady import none_is_steady
from ddprof.derived_once import remembered
from ddprof.units import format_us

MOST = 0.5  # of the recording: what is left is the smaller part, and start-up goes on between its calls
# All steps together: issuing one operation takes a host longer (2 to 10 us, kernel launches on A100 and H100).
LEAST_NS = 10_000
COMMUNICATION_ONLY = "the trace records communication only"
NOTHING_COMPUTED = "nothing is computed in the one step that was recorded; record later steps"
ONE_STEP_LEFT = "one step is left of a damaged recording; it may be one-off work, such as a first batch"


@remembered
def out_of_scope(job: JobFacts) -> str | None:
    """Why only communication can be judged, in words; None where the job's steps were recorded whole."""
    recorded_ns = max((int((f.steps["mark_end_ns"] - f.steps["mark_ns"]).sum()) for f in job.ranks), default=0)
    if recorded_ns < LEAST_NS:
        return f"too little was recorded: {format_us(recorded_ns / 1e3)} in all, less than one kernel launch"
    if all(f.top.get("records") == "communication" for f in job.ranks):
        return COMMUNICATION_ONLY
    if all(lost_device(f, job.ranks) for f in job.ranks):
        return f"no {job.ranks[0].device.kind} kernels were recorded"
    if any(map(is_torn_host, job.ranks)):
        return ONE_STEP_LEFT
    return start_up_only(job)


@remembered
def start_up_only(job: JobFacts) -> str | None:
    """Why no part of the job is known to recur (one-off work, or mostly start-up); None where some is."""
    if none_is_steady(job.ranks, job.left_out):
        told = "; ".join(f"step {step.number}: {step.why}" for step in job.left_out)
        return f"all steps that the ranks have in common are one-off ({told}); record later steps"
    starting = [intervals.length(start_up(f.once, f.steps)) for f in job.ranks]
    walls = [int((f.steps["mark_end_ns"] - f.steps["mark_ns"]).sum()) for f in job.ranks]
    if sum(starting) <= MOST * sum(walls):
        seen = [facts for facts in job.ranks if not lost_device(facts, job.ranks)]
        return None if any(map(may_compute, seen)) else NOTHING_COMPUTED
    return (
        f"only start-up was recorded (first calls took {format_us(sum(starting) / len(starting) / 1e3)} of "
        f"{format_us(sum(walls) / len(walls) / 1e3)}); record later steps"
    )

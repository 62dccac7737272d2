"""What the traces can answer: some formats record communication alone, some captures lost the device's events."""

from __future__ import annotations

from ddprof import intervals
from ddprof.analyzers.facts.stepping.once import start_up
from ddprof.analyzers.facts.work import lost_device
from ddprof.analyzers.job.model import JobFacts
from ddprof.units import format_us

MOST = 0.5  # of the recording: what is left is the smaller part, and start-up goes on between its calls
COMMUNICATION_ONLY = "the trace records communication only"


def out_of_scope(job: JobFacts) -> str | None:
    """Why nothing but communication can be judged, in words; None where steps of the job were recorded whole."""
    if all(f.top.get("records") == "communication" for f in job.ranks):
        return COMMUNICATION_ONLY
    if all(lost_device(f) for f in job.ranks):
        return f"no device events: what the {job.ranks[0].device.kind} devices did is unknown"
    return start_up_only(job)


def start_up_only(job: JobFacts) -> str | None:
    """Why nothing of the job is known to recur, in words: most of the recording is start-up; None where it is not."""
    starting = [intervals.length(start_up(f.once, f.steps)) for f in job.ranks]
    walls = [int((f.steps["mark_end_ns"] - f.steps["mark_ns"]).sum()) for f in job.ranks]
    if sum(starting) <= MOST * sum(walls):
        return None
    return (
        f"only start-up was recorded: of {format_us(sum(walls) / len(walls) / 1e3)} the first calls took "
        f"{format_us(sum(starting) / len(starting) / 1e3)} (creating contexts, loading code); record later steps"
    )

"""What the traces can answer: some formats record communication alone, some captures lost the device's events."""

from __future__ import annotations

from ddprof.analyzers.facts.work import lost_device
from ddprof.analyzers.job.model import JobFacts

COMMUNICATION_ONLY = "the trace records communication only"


def out_of_scope(job: JobFacts) -> str | None:
    """Why nothing but communication can be judged, in words; None where the job was recorded whole."""
    if all(f.top.get("records") == "communication" for f in job.ranks):
        return COMMUNICATION_ONLY
    if all(lost_device(f) for f in job.ranks):
        return f"no device events: what the {job.ranks[0].device.kind} devices did is unknown"
    return None

"""Are the stages of a pipeline known? Ranks of different stages run different programs and are no peers."""

from __future__ import annotations

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.names import OP_CODE, POINT_TO_POINT
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Abstention


def unknown_stages(rule_id: str, measures: Measures) -> list[Abstention]:
    """What a rule on pipeline stages says of a job in which none were found."""
    if not unmatched_messages(measures):
        return []
    return [Abstention(rule_id, "sends and receipts name no peer: stages cannot be told")]


def unmatched_messages(measures: Measures) -> bool:
    """The job sends and receives, but no trace says to whom."""
    return any(OP_CODE[t.op] in POINT_TO_POINT and t.role == "unmatched" for t in measures.comm.traffic)


def unknown_peers(measures: Measures) -> str:
    """Why ranks cannot be compared, "" where they can.

    Kernels of devices are compared by name and shape, whatever stage they are of; CPU ranks by all that they do.
    """
    job = measures.job
    if job.pipeline is not None or execution_of(job).peers_by_kernel or not unmatched_messages(measures):
        return ""
    return (
        "sends and receipts name no peer: which ranks run the same pipeline stage is unknown (record_shapes=True says)"
    )

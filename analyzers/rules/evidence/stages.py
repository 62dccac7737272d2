"""Knowledge of pipeline stages, without which ranks cannot be compared: stages run different programs."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.names import OP_CODE, POINT_TO_POINT
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Abstention
from ddprof.tables import NULL


def unknown_stages(rule_id: str, measures: Measures) -> list[Abstention]:
    """Abstentions of a rule on pipeline stages for a job in which none were found."""
    if not unmatched_messages(measures):
        return []
    if any((facts.messages["peer"] != NULL).any() for facts in measures.job.ranks):
        return [Abstention(rule_id, "the receiving ranks were not traced, or were left out, so stages are unknown")]
    return [Abstention(rule_id, "sends and receives name no peer, so stages are unknown")]


def unmatched_messages(measures: Measures) -> bool:
    """True where the job sends and receives, but no trace shows the peers."""
    return any(OP_CODE[t.op] in POINT_TO_POINT and t.role == "unmatched" for t in measures.comm.traffic)


def ranks_of_stage(measures: Measures, positions: Sequence[int]) -> tuple[int, ...]:
    """Rank numbers of a stage: those at the positions, and untraced ranks that reduce their gradients with them."""
    traced = measures.ranks(list(positions))
    others = {rank for rank in measures.job.rank_ids if rank not in traced}
    numbers = set(traced)
    groups = measures.job.groups
    for ranks, role in zip(groups["ranks"], groups["role"], strict=True):
        members = {int(rank) for rank in str(ranks).split(",") if rank}
        if role != "pp" and members & set(traced) and not members & others:
            numbers |= members & set(measures.job.missing_ranks)
    return tuple(sorted(numbers))


def unknown_peers(measures: Measures) -> str:
    """Reason why ranks cannot be compared; "" where they can.

    Kernels of devices are compared by name and shape across stages; CPU ranks by all that they do.
    """
    job = measures.job
    if job.pipeline is not None or execution_of(job).peers_by_kernel or not unmatched_messages(measures):
        return ""
    return (
        "sends and receipts name no peer: which ranks run the same pipeline stage is unknown (record_shapes=True says)"
    )

"""Parameter all-gathers are exposed although less sharding would fit.

What it detects: FSDP / ZeRO-3 all-gathers and reduce-scatters that no compute hides, while device memory is to spare
(or unknown).
Why it costs: stage 3 moves 1.5 x the bytes of data parallelism, and the forward pass cannot begin a unit before its
parameters are there.
How the gain is priced: the run is replayed without one of the two all-gather passes: its transfers and their exposure.
How to fix: reshard_after_forward=False (ZeRO-2), a hybrid shard inside the node, more prefetch.
Limits: memory is judged only where the trace or the capture reports it.
Sources: ZeRO paper (2 Psi against 3 Psi); torch.distributed.fsdp documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.examples import exposed_transfer
from ddprof.analyzers.rules.evidence.exposures import certainty, doubtful, of_reason
from ddprof.analyzers.rules.evidence.settings import text
from ddprof.findings import Abstention, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_bytes, format_share, format_us

ONE_PASS_LEFT = 0.5  # of the exposed sharding traffic: one of two all-gather passes is gone, the rest hides more easily
ROOM = 0.85  # of the device's memory: below it less sharding may fit


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Exposed sharding traffic."""
    yield from doubtful(measures, RULE.id, "sharding")
    found = of_reason(measures, "sharding")
    if not found:
        return
    memory = [
        f.memory for f in measures.job.ranks if f.memory.get("peak_allocated_bytes") and f.memory.get("total_bytes")
    ]
    if any(m["peak_allocated_bytes"] > ROOM * m["total_bytes"] for m in memory):
        return  # less sharding would not fit
    exposed = sum(e.traffic.exposed_us for e in found)
    volume = sum(e.traffic.total_bytes for e in found)
    moved = format_bytes(volume) if volume else "parameters"
    yield Candidate(
        id=RULE.id,
        summary=f"sharding moves {moved} per step and {format_share(exposed / measures.step_us)} of "
        "the step is exposed for it",
        ranks=(),
        lost_us=exposed,
        changes=(Change("scale_transfer", (), (ONE_PASS_LEFT,), "fsdp_shard"),),
        confidence=(0.8 if memory else 0.7) * min(map(certainty, found)),
        evidence=(
            *(
                Evidence(
                    f"{e.traffic.op}: {format_us(e.traffic.exposed_us)} of {format_us(e.traffic.transfer_us)} exposed "
                    "per step"
                )
                for e in found
            ),
            *exposed_transfer(measures, found[0].traffic),
        ),
        fixes=(
            Fix(
                setting="reshard_after_forward",
                current=text(measures.settings.fsdp.reshard_after_forward),
                suggested="False, or hybrid sharding inside the node",
                patch="fully_shard(module, reshard_after_forward=False)",
                why="parameters stay gathered between forward and backward: one all-gather pass less",
                source="ZeRO paper; torch.distributed.fsdp.fully_shard documentation",
            ),
            Fix(
                setting="forward prefetch",
                suggested="explicit prefetch of the next unit",
                patch="module.set_modules_to_forward_prefetch([next_module])",
                why="the next unit's parameters travel while this one computes",
                source="torch.distributed.fsdp documentation",
            ),
        ),
        band=0.35,
    )


RULE = Rule("comm.sharding", "Sharding traffic is exposed", detect, bound="communication", reads_traffic=True)

"""Parameter all-gathers are exposed although less sharding would fit.

What it detects: FSDP / ZeRO-3 all-gathers and reduce-scatters that no compute hides, while device memory is to spare
(or unknown).
Why it costs: stage 3 moves 1.5 x the bytes of data parallelism. The forward pass cannot begin a unit before its
parameters are there.
How the gain is priced: the run is replayed without the all-gathers of its backward passes.
How to fix: reshard_after_forward=False (ZeRO-2), a hybrid shard inside the node where the job has several.
Limits: many small units are comm.latency_bound, gathers that are not ahead comm.no_overlap: both have a better fix. A
hybrid shard is not priced by itself. Memory is judged only where the trace or the capture reports it.
Sources: ZeRO paper (2 Psi against 3 Psi); torch.distributed.fsdp documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.units import ROLE
from ddprof.analyzers.rules.evidence.exposures import doubtful, of_reason
from ddprof.analyzers.rules.evidence.present import is_new
from ddprof.analyzers.rules.evidence.sharded import UnitCosts, has_room, keep_gathered, unit_costs, within_hosts
from ddprof.analyzers.rules.evidence.spans import exposed_transfer
from ddprof.finding_ids import COMM_SHARDING
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_bytes, format_share, format_us

LEAST = (
    "parameters are gathered once per step already, and there is no hybrid sharding here: no setting reduces traffic"
)
HALF = 0.5  # of the exposed traffic, where the passes are not known or gather once: a shard group of half the ranks


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find exposed sharding traffic."""
    yield from doubtful(measures, RULE.id, "sharding")
    exposures = of_reason(measures, "sharding")
    if not exposures:
        return
    costs = unit_costs(measures)
    if costs is not None and (costs.merged > 1 or costs.lacks_prefetch):
        return  # another fix helps: comm.latency_bound, comm.no_overlap
    memory = [
        f.memory for f in measures.job.ranks if f.memory.get("peak_allocated_bytes") and f.memory.get("total_bytes")
    ]
    if not has_room(measures):
        return  # less sharding would not fit
    exposed = sum(e.traffic.exposed_us for e in exposures)
    fixes = _fixes(measures, costs)
    if not fixes:
        yield Abstention(RULE.id, LEAST, spent_us=exposed)
        return
    again = costs is not None and costs.gathers_again
    first = Change("keep_parameters", target=ROLE) if again else Change("scale_transfer", (), (HALF,), ROLE)
    volume = sum(e.traffic.total_bytes for e in exposures)
    moved = format_bytes(volume) if volume else "parameters"
    yield Candidate(
        id=RULE.id,
        summary=f"sharding moves {moved} per step; {format_share(exposed / measures.step_us)} of the step is exposed "
        "communication",
        lost_us=exposed,
        changes=(first,),
        basis=Basis.RECORDED if memory and all(e.traffic.is_whole for e in exposures) else Basis.DEDUCED,
        evidence=(
            *(
                Evidence(
                    f"{e.traffic.op}: {format_us(e.traffic.exposed_us)} of {format_us(e.traffic.transfer_us)} exposed "
                    "per step"
                )
                for e in exposures
            ),
            *exposed_transfer(measures, exposures[0].traffic),
        ),
        fixes=fixes,
        band=0.25 if again else 0.4,
    )


def _fixes(measures: Measures, costs: UnitCosts | None) -> tuple[Fix, ...]:
    """Settings that move fewer bytes, the priced one first."""
    kept, hybrid = keep_gathered(measures), within_hosts(measures)
    gathers_again = is_new(kept) if costs is None else costs.gathers_again
    return (*((kept,) if gathers_again else ()), *(() if hybrid is None else (hybrid,)))


RULE = Rule(COMM_SHARDING, "Sharding traffic is exposed", detect, bound="communication", reads_traffic=True)

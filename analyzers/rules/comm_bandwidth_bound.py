"""The volume is too large for the link, even when overlapped well.

What it detects: exposed transfer that is due neither to latency nor to a late start, but to bytes over bandwidth; and
bytes that need not be moved at all: large buffers sent before each forward pass, logits gathered for a metric in every
step. Gradients reduced after every micro-batch, although the optimizer steps once for several, count too. So does what
the script reduces between forward and backward pass; a loss may need that, so it may gain nothing.
Why it costs: compute has ended and the last buckets (or every tensor-parallel reduction) are still on the wire.
How the gain is priced: the run is replayed with half the transfer time (16 bit gradients, or a link twice as fast);
what messages of several sizes show to be latency stays. Calls that could go are left out. Those gain no more than they
hold the ranks, and what the same call computes on values of other ranks.
How to fix: a compression hook, accumulation with no_sync, HSDP, the right NCCL transport. On CPU ranks 16 bit gradients
take longer. Where `ddprof run` saw it, the finding says which transport NCCL chose and which settings narrow it.
Sockets within a host or beside an active InfiniBand port, and shared memory between GPUs that NVLink joins, come first.
Limits: whether the link runs below its rate cannot be told without its peak. Waiting for late ranks is never counted;
waiting for missing ranks would be, so nothing is said where one of them may be late. Where the sizes of small and large
messages explain how long each call took, nobody was waited for, and one rank's trace is enough. The same holds where
calls take equally long however much is computed before them. Micro-batches are recognised by backward passes and
optimizer steps, which capture or PyTorch's own ranges mark; several models with one optimizer keep a pass each. Buffers
are recognised in DistributedDataParallel, values that no pass needs by what comes before and after the call.
Sources: torch.distributed.algorithms.ddp_comm_hooks; torch.nn.parallel.DistributedDataParallel documentation (no_sync,
broadcast_buffers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.efficiency import reached_words
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import UNKNOWN_ROLE, JobFacts
from ddprof.analyzers.job.traffic.kinds import GRADIENT_ROLES
from ddprof.analyzers.job.traffic.routes import route_of
from ddprof.analyzers.job.traffic.statistics import roles_by_comm, with_known_transfer
from ddprof.analyzers.rules.evidence.exposures import Exposure, doubtful, of_reason, stands_on
from ddprof.analyzers.rules.evidence.redundant import could_go
from ddprof.analyzers.rules.evidence.spans import exposed_transfer
from ddprof.analyzers.rules.evidence.transport import of_job
from ddprof.finding_ids import COMM_BANDWIDTH_BOUND
from ddprof.findings import Abstention, Alters, Candidate, Change, Evidence, Fix, Rule
from ddprof.model import element_bytes
from ddprof.tables import Array
from ddprof.units import format_bytes

# Traffic bound by bandwidth, as one candidate: of comm.bandwidth_bound, and of comm.no_overlap where no setting makes
# the communication start earlier.

_HIDDEN = "compute can hide a transfer only if it does not need the data at once"
_WAITED_FOR = "compute needs their data at once, so only a faster link helps"
_HALVED = "half the bytes take half the transfer"
_LINK = Fix(
    setting="link of the gradients",
    suggested="twice as fast; check the NCCL transport and its bandwidth, or reduce less often",
    why="gradients are 16-bit already, so compression to 16 bit saves nothing",
    source="ml-engineering",
)
NARROW_BYTES = 2  # of an element: compression to 16 bit makes it no smaller
MOST = 0.5  # of the bytes of a role
HALF = 0.5  # of the transfer time: 16 bit gradients in place of 32 bit, or a link twice as fast


def saturated(measures: Measures, *exposures: Exposure) -> Candidate:
    """The candidate for the traffic of one role, most exposed first: half of its bytes take half of the transfer."""
    kinds, (moved_by, faster) = [exposure.traffic for exposure in exposures], of_job(measures)
    route = route_of(measures.job)
    traffic, total_bytes = kinds[0], sum(kind.total_bytes for kind in kinds)
    volume = f" ({format_bytes(total_bytes)} per step)" if total_bytes else ""
    return Candidate(
        id=COMM_BANDWIDTH_BOUND,
        summary=f"{' and '.join(dict.fromkeys(kind.op for kind in kinds))} traffic{volume} is bandwidth-bound",
        lost_us=sum(kind.exposed_us for kind in kinds),
        changes=(Change("scale_transfer", (), (_left(exposures),), traffic.role),),
        basis=stands_on(*exposures),
        evidence=(
            *(Evidence(kind.transfer_words) for kind in kinds),
            *(Evidence(words) for words in [reached_words(measures, traffic)] if words),
            *(Evidence(words) for words in (route.words if route is not None and traffic.op in route.ops else ())),
            *moved_by,
            *exposed_transfer(measures, traffic),
        ),
        fixes=(*faster, _fix(measures, traffic.role)),
    )


def _left(exposures: Sequence[Exposure]) -> float:
    """Share of the transfer time that is left of half the bytes: the latency of each call does not go with them."""
    took_ns = sum(float(exposure.traffic.times_us.sum()) for exposure in exposures) * 1e3
    models = [exposure.model for exposure in exposures if exposure.model is not None]
    if len(models) < len(exposures) or took_ns <= 0:
        return HALF
    sizes = (float(exposure.traffic.sizes_bytes.sum()) for exposure in exposures)
    by_bytes_ns = sum(size / model.bytes_per_ns for size, model in zip(sizes, models, strict=True))
    return 1.0 - HALF * min(1.0, by_bytes_ns / took_ns)


def _fix(measures: Measures, role: str) -> Fix:
    """The fix that halves the transfers of a role."""
    if role not in GRADIENT_ROLES:
        return Fix(
            setting=f"link of the {role}" if role.startswith(UNKNOWN_ROLE) else f"link of the {role or 'model'} groups",
            suggested="keep these groups inside NVLink; check the NCCL transport and its bandwidth",
            why=f"the purpose of these groups was not recorded; {_HIDDEN}"
            if role.startswith(UNKNOWN_ROLE)
            else _WAITED_FOR,
            source="ml-engineering",
        )
    hook = execution_of(measures.job).compression_hook
    if not hook:
        return Fix(
            setting="how often gradients are reduced",
            suggested="once for two batches, whose gradients are accumulated",
            patch="with model.no_sync():  # the first of every two batches\n    loss(first).backward()",
            why="half the bytes per batch; 16-bit gradients would take longer, as cores cast and add them",
            source="torch.nn.parallel.DistributedDataParallel.no_sync documentation",
            alters=Alters.UPDATES,
        )
    if _are_narrow(measures.job, role):
        return _LINK
    if not _reduced_by_ddp(measures.job):
        of_deepspeed = measures.settings.deepspeed.zero_stage is not None
        return Fix(
            setting="gradient compression",
            suggested="gradients reduced in 16 bit",
            patch='"communication_data_type": "bf16"' if of_deepspeed else None,
            why=_HALVED,
            source="DeepSpeed documentation on communication_data_type" if of_deepspeed else "ml-engineering",
            alters=Alters.PRECISION,
        )
    return Fix(
        setting="gradient compression",
        suggested=hook,
        applies=(("gradient_compression", "bf16"),) if hook == "bf16_compress_hook" else (),
        patch=f"model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks.{hook})",
        why=_HALVED,
        source="torch.distributed.algorithms.ddp_comm_hooks",
        alters=Alters.PRECISION,
    )


def _are_narrow(job: JobFacts, role: str) -> bool:
    """True where elements of 16 bits or fewer are most of the bytes that groups of this role move."""
    separable, narrow, every = with_known_transfer(job), 0, 0
    for position, facts in enumerate(job.ranks):
        of_role = (roles_by_comm(job, position, separable) == role) & (facts.comms["size_bytes"] > 0)
        size = facts.comms["size_bytes"]
        every += int(size[of_role].sum())
        narrow += int(size[of_role & _is_narrow(facts)].sum())
    return narrow > MOST * every


def _is_narrow(facts: RankFacts) -> Array:
    """Mask of communications with elements of 16 bits or fewer, shape (comms,)."""
    kinds = np.unique(facts.comms["dtype"])
    widths = [element_bytes(facts.strings[kind]) if kind >= 0 else None for kind in kinds.tolist()]
    narrow = [kind for kind, width in zip(kinds.tolist(), widths, strict=True) if width and width <= NARROW_BYTES]
    return np.isin(facts.comms["dtype"], narrow)


def _reduced_by_ddp(job: JobFacts) -> bool:
    """True where capture or the wrapper's own ranges show DistributedDataParallel."""
    wrapper = "DistributedDataParallel"
    return any("ddp" in f.sidecar.parallelism or any(wrapper in text for text in f.strings) for f in job.ranks)


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find exposed transfers bound by their volume."""
    yield from could_go(measures, RULE.id, is_volume=True)
    yield from doubtful(measures, RULE.id, "bandwidth")
    of_role: dict[str, list[Exposure]] = {}
    for exposure in of_reason(measures, "bandwidth"):
        of_role.setdefault(exposure.traffic.role, []).append(exposure)
    for exposures in of_role.values():  # one link, and one fix
        yield saturated(measures, *exposures)


RULE = Rule(COMM_BANDWIDTH_BOUND, "Traffic is bandwidth-bound", detect, bound="communication", reads_traffic=True)

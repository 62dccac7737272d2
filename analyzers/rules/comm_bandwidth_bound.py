"""The volume is too large for the link, even when overlapped well.

What it detects: exposed transfer that is due neither to latency nor to a late start, but to bytes over bandwidth; and
bytes that need not be moved at all: large buffers sent before each forward pass, logits gathered for a metric in every
step. Gradients reduced after every micro-batch, although the optimizer steps once for several, count too.
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
calls take equally long however much is computed before them. Micro-batches are told by backward passes and optimizer
steps, which capture or PyTorch's own ranges mark; several models with one optimizer keep a pass each. Buffers are told
in DistributedDataParallel, values that no pass needs by what comes before and after the call.
Sources: torch.distributed.algorithms.ddp_comm_hooks; torch.nn.parallel.DistributedDataParallel documentation (no_sync,
broadcast_buffers).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.exposures import Exposure, doubtful, of_reason
from ddprof.analyzers.rules.evidence.redundant.candidates import could_go
from ddprof.analyzers.rules.evidence.saturated import saturated
from ddprof.finding_ids import COMM_BANDWIDTH_BOUND
from ddprof.findings import Abstention, Candidate, Rule


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

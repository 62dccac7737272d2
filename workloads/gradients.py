"""DistributedDataParallel with the faults of its communication: buckets, what is sent too often, a slow link."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from ddprof.workloads.arguments import Switches
from ddprof.workloads.job import Place

TINY_MB, HUGE_MB = 0.001, 1000.0
SLOW_LINK_COPIES = 8  # a link this much slower than the machine's own; the fix halves it
MICRO_BATCHES = 4  # per optimizer step, where gradients are accumulated
QUEUE_ROWS, QUEUE_WIDTH = (
    65_536,
    128,
)  # of the memory bank of MoCo (arXiv:1911.05722): 32 MiB that no rank but one needs


def bucket_cap_mb(switches: Switches, model: nn.Module) -> float | None:
    """`bucket_cap_mb` for DDP; None is its default."""
    fixed = switches.fixed_by("buckets")
    if switches.on("tiny-buckets"):
        return None if fixed else TINY_MB
    if switches.on("no-overlap"):
        return max(1.0, round(sum(p.nbytes for p in model.parameters()) / 2**20 / 4)) if fixed else HUGE_MB
    return None


def data_parallel(model: nn.Module, place: Place, stated_cap_mb: float | None = None) -> DistributedDataParallel:
    """The model under DDP, with the fault that lives there; `stated_cap_mb` goes before the fault's buckets."""
    ids = [place.device.index] if place.device.type == "cuda" else None
    cap_mb = stated_cap_mb or bucket_cap_mb(place.switches, model)
    if place.switches.on("sent-buffers"):
        model.register_buffer("queue", torch.zeros(QUEUE_ROWS, QUEUE_WIDTH, device=place.device))
    options: dict[str, Any] = {"broadcast_buffers": False} if place.switches.fixed_by("own-buffers") else {}
    options["find_unused_parameters"] = place.switches.on("unused-parameters", until="all-used")
    if cap_mb is None:
        wrapped = DistributedDataParallel(model, device_ids=ids, **options)
    else:
        # DDP's first bucket has a limit of its own, which would hide the fault.
        setattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", int(cap_mb * 2**20))  # noqa: B010
        wrapped = DistributedDataParallel(model, device_ids=ids, bucket_cap_mb=cap_mb, **options)
    if place.switches.fixed_by("compress"):
        # gloo sums no bfloat16 through this hook.
        wrapped.register_comm_hook(None, bf16_compress_hook if ids else fp16_compress_hook)
    if place.switches.on("slow-link"):
        copies = SLOW_LINK_COPIES // (2 if place.switches.fixed_by("link") else 1)
        wrapped.register_comm_hook(SlowLink(copies), over_slow_link)
    return wrapped


def micro_batches(switches: Switches, *batch: Tensor) -> Iterator[tuple[tuple[Tensor, ...], bool]]:
    """The parts of a batch whose gradients are accumulated, each with whether it is the last; usually one."""
    count = MICRO_BATCHES if switches.on("sent-each-time") else 1
    parts = list(zip(*(values.chunk(count) for values in batch), strict=True))
    for number, part in enumerate(parts, 1):
        yield part, number == len(parts)


def sent(model: DistributedDataParallel, switches: Switches, last: bool) -> AbstractContextManager[None]:
    """Around forward and backward of a part: with the fix only the last part's gradients are sent."""
    held: AbstractContextManager[None] = model.no_sync() if switches.fixed_by("no-sync") and not last else nullcontext()
    return held


@dataclass
class SlowLink:
    """A link that moves every gradient `copies` times.

    What it moves beside the gradients are zeros that are made once per bucket: a slow link costs no work.
    """

    copies: int
    buffers: dict[int, Tensor] = field(default_factory=dict)

    def padded(self, index: int, gradients: Tensor) -> Tensor:
        """The buffer of a bucket; buckets are laid out anew after the first step."""
        size = gradients.numel() * self.copies
        if index not in self.buffers or self.buffers[index].numel() != size:
            self.buffers[index] = gradients.new_zeros(size)
        return self.buffers[index]


def over_slow_link(link: SlowLink, bucket: Any) -> torch.futures.Future[Tensor]:
    """Communication hook that takes the time of a slow link."""
    gradients = bucket.buffer()
    padded = link.padded(bucket.index(), gradients)
    torch.div(gradients, dist.get_world_size(), out=padded[: gradients.numel()])
    moved = dist.all_reduce(padded, async_op=True).get_future()
    arrived: torch.futures.Future[Tensor] = moved.then(
        lambda done: gradients.copy_(done.value()[0][: gradients.numel()])
    )
    return arrived


# DDP compares the annotations with its own types, and finds strings where annotations are postponed.
over_slow_link.__annotations__ = {
    "bucket": getattr(dist, "GradBucket"),  # noqa: B009
    "return": torch.futures.Future[Tensor],
}

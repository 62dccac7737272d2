"""Replacement code for avoidable communication, one function per kind."""

from __future__ import annotations

from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Alters, Fix


def accumulation(measures: Measures, passes: int) -> Fix:
    """The fix that reduces in the last backward pass only."""
    sharded = "fsdp" in measures.settings.parallelism or any(t.role == "fsdp_shard" for t in measures.comm.traffic)
    if sharded and measures.settings.fsdp.version != 1:
        patch = "model.set_requires_gradient_sync(is_last_micro_batch)  # before each forward pass"
        source = "torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync documentation"
    else:
        patch = (
            "with contextlib.nullcontext() if is_last_micro_batch else model.no_sync():\n"
            "    loss_of(model(batch)).backward()  # the forward pass belongs inside, too"
        )
        source = "torch.nn.parallel.DistributedDataParallel.no_sync documentation"
    memory = "; until then each rank keeps whole gradients, which takes memory" if sharded else ""
    return Fix(
        setting="gradient reductions while gradients are accumulated",
        current=f"in each of {passes} backward passes",
        suggested="in the last one before the optimizer",
        patch=patch,
        why=f"the result is the same when accumulated gradients are reduced once{memory}",
        source=source,
        alters=Alters.REDUCTIONS,
    )


def buffers(measures: Measures, _: int) -> Fix:
    """The fix that sends buffers only where they are needed: before evaluating or saving."""
    return Fix(
        setting="broadcast_buffers",
        current="True",
        suggested="False",
        patch="DistributedDataParallel(model, broadcast_buffers=False)",
        applies=(("broadcast_buffers", False),),
        why="training reads no running statistics, and constants are equal already; before evaluating on all ranks "
        "send rank 0's once, or use SyncBatchNorm",
        source="torch.nn.parallel.DistributedDataParallel documentation",
        alters=Alters.BUFFERS,
    )


def unused(measures: Measures, _: int) -> Fix:
    """Do not search for unused parameters."""
    return Fix(
        setting="find_unused_parameters",
        current="True",
        suggested="False",
        applies=(("find_unused_parameters", False),),
        patch="DistributedDataParallel(model)  # its error names unused parameters, should there be any",
        why="the search finds nothing; without it DDP orders buckets as gradients arrive",
        source="torch.nn.parallel.DistributedDataParallel documentation; PyTorch DDP (VLDB'20) section 3.2.3",
        alters=Alters.PARAMETERS,
    )


def metrics(measures: Measures, _: int) -> Fix:
    """The fix that sums on the rank and gathers every N steps."""
    return Fix(
        setting="metrics over all ranks",
        current="in every step",
        suggested="added up on each rank, reduced every N steps",
        patch="total += loss.detach()  # and counts, such as (logits.argmax(-1) == labels).sum(), not the logits\n"
        "if step % 100 == 0:\n    dist.all_reduce(total)  # one tensor for all values",
        why="ranks synchronize there in every step, and the host waits for the values",
        source="PyTorch performance tuning guide",
        alters=Alters.VALUES,
    )


def parameters(measures: Measures, _: int) -> Fix:
    """The fix that leaves equal parameters to DistributedDataParallel."""
    return Fix(
        setting="parameters sent after the optimizer's step",
        suggested="not at all, or once in many steps as a check",
        why="DistributedDataParallel sends the parameters once and reduces gradients: replicas stay equal",
        source="PyTorch DDP (VLDB'20)",
        alters=Alters.EQUAL,
    )


def norms(measures: Measures, _: int) -> Fix:
    """The fix that reduces all values in one collective."""
    equal = "ddp" in measures.settings.parallelism
    note = "; gradients that DDP has reduced are equal on all ranks, and their norm needs none" if equal else ""
    return Fix(
        setting="values reduced one by one",
        suggested="one tensor for all of them",
        patch="squares = torch.stack(torch._foreach_norm(gradients)).square().sum()\n"
        "dist.all_reduce(squares)  # once; torch.nn.utils.clip_grad_norm_ does without where gradients are whole",
        why=f"each call pays its latency, and the next one waits for it{note}",
        source="torch.nn.utils.clip_grad_norm_ documentation",
    )

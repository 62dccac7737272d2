"""Ranks that are meant to hold the same parameters do not.

What it detects: after a trace window, or at a later step, the parameters of a DistributedDataParallel model differ
between its ranks. After the window also those of a model whose gradients, or all but a few of them, the script sums
over all ranks itself; or parameters outside the wrapper in a job that has one.
Why it matters: the ranks then train different models with averaged gradients. The loss that one rank prints, and the
checkpoint that it saves, stand for none of the others; no error is raised.
How to fix: call the wrapper, not `model.module`; no `no_sync()` around the last backward of a step; load or change
weights on every rank, or before wrapping; broadcast the initial parameters where the script sums gradients itself; put
every trained module, losses with parameters too, into the wrapper.
Limits: needs ddprof's own capture, and a window that ended before the job did. The last step that is compared lies in
the second half of the job. At most 512 numbers of each of 1,024 tensors are compared, always the same ones: a
difference in a few rows of a large embedding can be missed. Sharded parameters (FSDP, DTensor, ZeRO), models that no
wrapper and no sum over all ranks connects, and copies that torch's hook for local SGD lets part, are not compared.
Where only the last bits differ, ranks computed the same on other hardware, with other libraries, or in another order.
Sources: PyTorch DDP notes, DistributedDataParallel documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import (
    DDP,
    MODULE,
    Copies,
    at_line,
    copies,
    moves_state,
    named,
    sums_every_gradient,
)
from ddprof.finding_ids import TRAINING_REPLICAS_DIFFER
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.units import format_count

# Relative: a hundred times the precision of float32 (2**-23), so rounding that has added up over some steps. Another
# start, or other gradients, differ by far more.
ROUNDING = 1e-5
SOURCE = "DistributedDataParallel documentation"
_WRAPPED_FIX = Fix(
    setting="how the wrapped model is called and changed",
    suggested="call the wrapper itself, change weights on every rank",
    patch="output = model(batch)          # not model.module(batch): no gradient would be averaged\n"
    "# load or initialise weights before DistributedDataParallel(model), which copies rank 0's to all",
    why="gradients are averaged only in a backward that followed the wrapper's forward, outside no_sync()",
    source=SOURCE,
)
_SUMMED_FIX = Fix(
    setting="initial parameters",
    suggested="broadcast them from rank 0 before the first step",
    patch="for tensor in model.state_dict().values():\n    torch.distributed.broadcast(tensor, src=0)",
    why="equal gradients keep equal parameters equal, and different ones different",
    source=SOURCE,
)
_LEFT_OUT_FIX = Fix(
    setting="gradients that are not summed",
    suggested="summed like the others, unless each rank is meant to train its own",
    patch="for parameter in model.parameters():\n    torch.distributed.all_reduce(parameter.grad)",
    why="a parameter that misses the sum follows this rank's batches alone",
    source=SOURCE,
)
_OUTSIDE_FIX = Fix(
    setting="parameters outside the wrapper",
    suggested="put them into the module that is wrapped, unless each rank is meant to train its own",
    patch="model = DistributedDataParallel(nn.ModuleList([backbone, head]))  # called in one forward",
    why="their gradients come from this rank's batch alone",
    source=SOURCE,
)
_RATE_FIX = Fix(
    setting="learning rate of each rank",
    suggested="the same on every rank",
    patch="torch.distributed.all_reduce(loss, torch.distributed.ReduceOp.AVG)\nscheduler.step(loss)",
    why="equal gradients change parameters alike at equal rates; a schedule of a rank's own loss parts them",
    source="torch.optim.lr_scheduler documentation",
)
_ROUNDING_FIX = Fix(
    setting="hardware and libraries of the ranks",
    suggested="the same on every rank",
    why="the same update was rounded differently; it grows slowly",
    source="PyTorch reproducibility notes",
)


def detect(job: JobFacts) -> Iterator[Remark]:
    """Models whose parameters differ."""
    wrapped = list(copies(job, DDP))
    for group in wrapped:
        places = group.differing(buffers=False)
        if places:
            yield _remark(group, places, _of_model(group), _WRAPPED_FIX)
    for group in copies(job, MODULE):
        places = group.differing(buffers=False)
        if not places:
            continue
        if sums_every_gradient(job):
            yield _remark(group, places, _of_model(group), _SUMMED_FIX)
        elif wrapped and not moves_state(job):
            words = "parameters outside the DistributedDataParallel model are not the same on all ranks"
            yield _remark(group, places, words, _OUTSIDE_FIX)
        elif _are_left_out(job, group, places):
            words = "parameters whose gradients are not summed, unlike the others, differ between ranks"
            yield _remark(group, places, words, _LEFT_OUT_FIX)


def _are_left_out(job: JobFacts, group: Copies, places: list[int]) -> bool:
    """True where ranks only sum gradients, those of most parameters and not of these."""
    most = 2 * len(places) < len(group.one.names) - len(group.one.buffers)
    return most and not moves_state(job) and sums_every_gradient(job, [group.one.names[at] for at in places])


def _of_model(group: Copies) -> str:
    return f"parameters of {group.one.name or 'the model'} differ between ranks that should hold the same"


def _remark(group: Copies, places: list[int], what: str, fix: Fix) -> Remark:
    names = [group.one.names[at] for at in places]
    total = len(group.one.names) - len(group.one.buffers)
    distance = group.distance(places)
    rounding = distance is not None and distance <= ROUNDING
    return Remark(
        id=CHECK.id,
        summary=f"{what}{', in their last bits' if rounding else ''}: {len(places)} of {format_count(total, 'tensor')}",
        ranks=group.odd_ranks(places),
        evidence=(
            Evidence(f"after step {group.step}: {named(names)} differ"),
            *_values(group, places),
            *_rates(group),
            *at_line("wrapped" if group.one.kind == DDP else "their optimizer made", group.one.line),
        ),
        fixes=(_ROUNDING_FIX if rounding else _RATE_FIX if _rates(group) else fix,),
        severity="info" if rounding else "critical",
    )


def _values(group: Copies, places: list[int]) -> Iterator[Evidence]:
    """Evidence: the first values of a differing tensor on two ranks."""
    for at in places:
        if words := _two({rank: model.values[at] for rank, model in group.models.items() if at < len(model.values)}):
            yield Evidence(f"{group.one.names[at]} begins with {words}")
            return


def _rates(group: Copies) -> tuple[Evidence, ...]:
    """Evidence: a learning rate that is not the same on two ranks."""
    of_groups = (dict(zip(group.rates, rates, strict=True)) for rates in zip(*group.rates.values(), strict=False))
    return tuple(Evidence(f"the learning rate is {words}") for rates in of_groups if (words := _two(rates)))[:1]


def _two(values: Mapping[int, float | None]) -> str:
    """Two values that differ, with their ranks; "" without."""
    first, *others = sorted((rank, value) for rank, value in values.items() if value is not None) or [(0, 0.0)]
    other = next(((rank, value) for rank, value in others if value != first[1]), None)
    return "" if other is None else f"{first[1]:.6g} on rank {first[0]}, {other[1]:.6g} on rank {other[0]}"


CHECK = Check(TRAINING_REPLICAS_DIFFER, "Ranks hold different parameters where they should be equal", detect)

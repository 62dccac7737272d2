"""Collectives of one group across its ranks: the first that the ranks disagree about, or that some did not enter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddprof.slices.hangs.evidence import UNKNOWN_OP, Call
from ddprof.slices.hangs.judging.frames import user_frame
from ddprof.slices.hangs.judging.groups import JobGroup
from ddprof.slices.hangs.judging.order import passed_over
from ddprof.slices.hangs.model import Stuck, Variant

# Operations whose ranks may give tensors of other shapes (torch/distributed/flight_recorder, Op.match).
_UNEVEN_INPUT = ("all_to_all", "alltoall", "scatter", "_gather", "all_gather_v", "broadcast")
_UNEVEN_OUTPUT = ("all_to_all", "alltoall", "gather", "reduce_scatter_v", "scatter", "reduce")
_ALL_ALIKE = ("all_reduce", "allreduce", "_all_gather_base", "all_gather", "reduce_scatter", "_reduce_scatter_base")


def stuck_in(job: JobGroup) -> Stuck | None:
    """The first collective of a group that does not end; None where all have ended, or are missing only on unknown
    ranks.

    Numbers are compared from where all records begin: each keeps the last ones only.
    """
    calls = {rank: {call.number: call for call in calls} for rank, calls in job.calls.items()}
    if not any(not call.done for of in calls.values() for call in of.values()):
        return None
    first = max((min(of) for of in calls.values() if of), default=0)
    unfinished = min(call.number for of in calls.values() for call in of.values() if not call.done)
    for number in sorted({number for of in calls.values() for number in of if number >= first}):
        here = {rank: of[number] for rank, of in calls.items() if number in of}
        lacking = tuple(sorted(rank for rank, of in calls.items() if max(of, default=-1) < number))
        # A difference that all ranks came through is none that stops them; gloo may retire the call that fails.
        if number >= unfinished - 1 and (differ := _difference(here)) is not None:
            return _disagreement(job, number, here, lacking, *differ)
        if here and any(not call.done for call in here.values()):
            return _waiting(job, number, here, lacking)
    return None


def _difference(here: Mapping[int, Call]) -> tuple[str, dict[int, object]] | None:
    """The first thing that calls of one number disagree about ("operation", "shape", "dtype"), and what each rank's
    call says of it; None where they may be one call. What is not recorded of a call differs from nothing.
    """
    for what, told in _told(here):
        recorded = {rank: said for rank, said in told.items() if said}
        if len(set(recorded.values())) > 1:
            return what, recorded
    return None


def _told(here: Mapping[int, Call]) -> Iterator[tuple[str, dict[int, object]]]:
    """Fields that the calls of one collective must share, and what is recorded of it by rank."""
    ops = {rank: "" if call.op == UNKNOWN_OP else call.op for rank, call in here.items()}
    yield "operation", dict(ops)
    op = next(filter(None, ops.values()), UNKNOWN_OP)  # after this they have but one
    if not _may_differ(op, _UNEVEN_INPUT):
        yield "shape", {rank: call.input_sizes for rank, call in here.items()}
    if not _may_differ(op, _UNEVEN_OUTPUT):
        yield "shape", {rank: call.output_sizes for rank, call in here.items()}
    yield "dtype", {rank: call.dtypes for rank, call in here.items()}


def _may_differ(op: str, uneven: Sequence[str]) -> bool:
    """True for `scatter`, `gather` and the like, whose root gives or takes more than others: shapes differ."""
    return not _is_alike(op) and any(word in op for word in uneven)


def _is_alike(op: str) -> bool:
    return op in _ALL_ALIKE or op.startswith(("allreduce", "all_reduce"))


def _disagreement(
    job: JobGroup,
    number: int,
    here: Mapping[int, Call],
    lacking: tuple[int, ...],
    differs: str,
    told: Mapping[int, object],
) -> Stuck:
    """The two calls that the ranks disagree on, with the larger set of ranks first."""
    kinds: dict[object, list[int]] = {}
    for rank, said in sorted(told.items()):
        kinds.setdefault(said, []).append(rank)
    ordered = sorted(kinds.values(), key=lambda ranks: (-len(ranks), ranks))
    variants = tuple(Variant(tuple(ranks), here[ranks[0]]) for ranks in ordered)
    common = variants[0]
    return Stuck(
        group=job.group.name,
        number=number,
        op=common.call.op,
        entered=tuple(sorted(here)),
        missing=lacking,
        unseen=job.unseen,
        since_ns=_earliest(here.values()),
        frame=user_frame(common.call.frames),
        variants=variants,
        differs=differs,
        passed=passed_over(job.calls, number),
    )


def _waiting(job: JobGroup, number: int, here: Mapping[int, Call], lacking: tuple[int, ...]) -> Stuck | None:
    inside = {rank: call for rank, call in here.items() if not call.done}
    call = inside[min(inside)]
    return Stuck(
        group=job.group.name,
        number=number,
        op=call.op,
        entered=tuple(sorted(inside)),
        missing=lacking,
        unseen=job.unseen,
        since_ns=_earliest(inside.values()),
        frame=user_frame(call.frames),
        passed=passed_over(job.calls, number) if lacking else (),
    )


def _earliest(calls: Iterable[Call]) -> int | None:
    return min((call.entered_ns for call in calls if call.entered_ns), default=None)

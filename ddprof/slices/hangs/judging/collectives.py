"""Calls that do not end: the first collective of a group that its ranks disagree about or that some did not enter, and
messages between two ranks (pipelines), awaited but not sent, or sent but not received.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ddprof.slices.hangs.evidence import UNKNOWN_OP, Call, RankEvidence
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
            return _disagreement(_stuck(job, number, here, lacking), job, here, *differ)
        inside = {rank: call for rank, call in here.items() if not call.done}
        if inside:
            return _stuck(job, number, inside, lacking)
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
    is_alike = op in _ALL_ALIKE or op.startswith(("allreduce", "all_reduce"))
    return not is_alike and any(word in op for word in uneven)


def _disagreement(
    stuck: Stuck, job: JobGroup, here: Mapping[int, Call], differs: str, told: Mapping[int, object]
) -> Stuck:
    """The collective with the calls that its ranks disagree on, that of the larger set of ranks first."""
    kinds: dict[object, list[int]] = {}
    for rank, said in sorted(told.items()):
        kinds.setdefault(said, []).append(rank)
    ordered = sorted(kinds.values(), key=lambda ranks: (-len(ranks), ranks))
    variants = tuple(Variant(tuple(ranks), here[ranks[0]]) for ranks in ordered)
    common = variants[0].call
    passed = passed_over(job.calls, stuck.number)
    frame = user_frame(common.frames)
    return replace(stuck, op=common.op, frame=frame, variants=variants, differs=differs, passed=passed)


def _stuck(job: JobGroup, number: int, inside: Mapping[int, Call], lacking: tuple[int, ...]) -> Stuck:
    call = inside[min(inside)]
    return Stuck(
        group=job.group.name,
        number=number,
        op=call.op,
        entered=tuple(sorted(inside)),
        missing=lacking,
        unseen=job.unseen,
        since_ns=min((call.entered_ns for call in inside.values() if call.entered_ns), default=None),
        frame=user_frame(call.frames),
        passed=passed_over(job.calls, number) if lacking else (),
    )


Ends = tuple[str, int, int]  # group, sender, receiver


def stuck_messages(ranks: Sequence[RankEvidence]) -> list[Stuck]:
    """The first message of each pair of ranks that does not arrive; messages of a pair arrive in order."""
    sent, awaited = _numbered(ranks)
    recorded = {e.rank for e in ranks if e.has_calls}
    messages = []
    for ends in sorted({*sent, *awaited}):
        _, sender, receiver = ends
        if sender in recorded and receiver in recorded:
            stuck = _first_stuck(ends, sent.get(ends, {}), awaited.get(ends, {}))
            messages += [stuck] if stuck else []
    return messages


def _numbered(ranks: Sequence[RankEvidence]) -> tuple[dict[Ends, dict[int, Call]], dict[Ends, dict[int, Call]]]:
    sent: dict[Ends, dict[int, Call]] = {}
    awaited: dict[Ends, dict[int, Call]] = {}
    for evidence in ranks:
        for call in evidence.calls:
            if call.peer is None:
                continue
            if call.op.endswith("send"):
                sent.setdefault((call.group, evidence.rank, call.peer), {})[call.number] = call
            else:
                awaited.setdefault((call.group, call.peer, evidence.rank), {})[call.number] = call
    return sent, awaited


def _first_stuck(ends: Ends, sent: dict[int, Call], awaited: dict[int, Call]) -> Stuck | None:
    group, sender, receiver = ends
    for number in sorted({*sent, *awaited}):
        send, receive = sent.get(number), awaited.get(number)
        if receive and not send and number > max(sent, default=0):
            return _stuck_message(group, receive, receiver, sender)
        if send and not receive and not send.done and number > max(awaited, default=0):
            return _stuck_message(group, send, sender, receiver)
        if send and receive and _differ(send, receive) and not (send.done and receive.done):
            variants = (Variant((sender,), send), Variant((receiver,), receive))
            return _stuck_message(group, receive, receiver, sender, variants)
    return None


def _differ(send: Call, receive: Call) -> bool:
    """True where the received shape differs; recorders keep the tensor as input of one side and output of the other."""
    given, taken = (call.input_sizes or call.output_sizes for call in (send, receive))
    return bool(given and taken and given != taken)


def _stuck_message(group: str, call: Call, waiting: int, other: int, variants: tuple[Variant, ...] = ()) -> Stuck:
    return Stuck(
        group=group,
        number=call.number,
        op=call.op,
        entered=(waiting, other) if variants else (waiting,),
        missing=() if variants else (other,),
        since_ns=call.entered_ns,
        frame=user_frame(call.frames),
        variants=variants,
        differs="shape" if variants else "",
        is_message=True,
    )

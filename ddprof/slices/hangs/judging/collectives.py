"""Calls that do not end: the first collective of a group that its ranks disagree about or that some did not enter, and
messages between two ranks (pipelines), awaited but not sent, or sent but not received.

Of collectives also the ranks that left the common order of calls: one omitted, one too many, or two swapped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ddprof.slices.hangs.judging.groups import JobGroup
from ddprof.slices.hangs.model import UNKNOWN_OP, Call, Passed, RankEvidence, Stuck, Variant, user_frame

# Operations whose ranks may give tensors of other shapes (torch/distributed/flight_recorder, Op.match).
_UNEVEN_INPUT = ("all_to_all", "alltoall", "scatter", "_gather", "all_gather_v", "broadcast")
_UNEVEN_OUTPUT = ("all_to_all", "alltoall", "gather", "reduce_scatter_v", "scatter", "reduce")
_ALL_ALIKE = ("all_reduce", "allreduce", "_all_gather_base", "all_gather", "reduce_scatter", "_reduce_scatter_base")


def stuck_in(job: JobGroup) -> Stuck | None:
    """The first collective, of those in all records, that does not end; None where only unknown ranks lack one."""
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


Key = tuple[object, ...]
Numbered = tuple[Key, Call]
_OP, _LINE = 0, 3  # their places in a key
_MOST_CARRIED_ON = 4096  # calls: twice what a flight recorder keeps by default
MOST_LEFT_OUT = 8  # calls in a row: what one branch of a script holds


def passed_over(calls: Mapping[int, Sequence[Call]], number: int) -> tuple[Passed, ...]:
    """The ranks that left the common order at or before collective `number`, and how.

    Calls are compared by operation, shapes, dtypes and calling line, the only difference between two loops of equal
    all-reduces. The reference is most ranks or, with two, what followed the last common call before.
    """
    spans = {rank: [c for c in of if c.number <= number + 1] for rank, of in calls.items() if of}
    if len(spans) < 2:
        return ()
    first = max(min(c.number for c in of) for of in spans.values())
    keys = {rank: {c.number: (_key(c), c) for c in of if c.number >= first} for rank, of in spans.items()}
    at = _first_difference(keys, first, number)
    if at is None:
        return ()
    kinds = Counter(of[at][0] for of in keys.values() if at in of)
    expected = _expected(keys, kinds, at)
    if expected is None:
        return ()
    passed = []
    reference = next(rank for rank, of in keys.items() if at in of and of[at][0] == expected)
    for rank, of in sorted(keys.items()):
        if at in of and of[at][0] != expected and _is_shifted(of, keys[reference], at):
            passed.append(Passed(rank, keys[reference][at][1], of[at][1], _is_extra(of, keys[reference], at)))
    return tuple(passed)


def _key(call: Call) -> Key:
    line = user_frame(call.frames)
    where = (line.file, line.line) if line is not None else None
    return (call.op, call.input_sizes, call.input_dtypes, where)


def _first_difference(keys: Mapping[int, Mapping[int, Numbered]], first: int, last: int) -> int | None:
    """The first number whose calls differ and after which no number has calls alike on all ranks."""
    difference: int | None = None
    for number in sorted({number for of in keys.values() for number in of if first <= number <= last}):
        here = {of[number][0] for of in keys.values() if number in of}
        if len(here) > 1:
            difference = number if difference is None else difference
        elif len(here) == 1 and sum(number in of for of in keys.values()) == len(keys):
            difference = None
    return difference


def _expected(keys: Mapping[int, Mapping[int, Numbered]], kinds: Counter[Key], at: int) -> Key | None:
    """Call of most ranks; among equals the one that always followed the previous call. None if unknown."""
    (most, count), *others = kinds.most_common()
    if not others:
        return None
    if count > others[0][1]:
        return most
    before = next((of[at - 1][0] for of in keys.values() if at - 1 in of), None)
    followed: Counter[Key] = Counter()
    for of in keys.values():
        followed.update(of[n + 1][0] for n in of if n + 1 < at and n + 1 in of and of[n][0] == before)
    candidates = {key for key in followed if key in kinds}
    return candidates.pop() if len(candidates) == 1 and len(followed) == 1 else None


def _is_shifted(calls: Mapping[int, Numbered], others: Mapping[int, Numbered], at: int) -> bool:
    """True where the rank's calls from `at` on are its peers' with some omitted, one added, or two swapped.

    Waiting peers have made no later call, so what followed before stands in for it. Where that is unknown, the
    unexpected call must be one that peers make elsewhere. A pair of lines that matched before is the script's design
    (the root of a broadcast has its own).
    """
    if any(n < at and n in others and calls[n][0] == calls[at][0] and others[n][0] == others[at][0] for n in calls):
        return False
    if calls[at][0][_OP] == others[at][0][_OP] and calls[at][0][_LINE] == others[at][0][_LINE]:
        return False  # the same call, of other tensors
    later = [n for n in calls if n >= at]
    expected = _continued(others, max(later) + MOST_LEFT_OUT)
    for shift in (*range(1, MOST_LEFT_OUT + 1), -1):
        moved = [n for n in later if n + shift >= at]
        if moved and all(n + shift in expected and calls[n][0] == expected[n + shift] for n in moved):
            return True
    swapped = at + 1 in calls and expected.get(at + 1) == calls[at][0] and expected[at] == calls[at + 1][0]
    unknown = at + 1 not in expected and any(key == calls[at][0] for key, _ in others.values())
    return swapped or unknown


def _continued(calls: Mapping[int, Numbered], last: int) -> dict[int, Key]:
    """The keys of a rank's calls, extended to number `last` by their order so far."""
    keys = {number: key for number, (key, _) in calls.items()}
    end = max(keys)
    before = next((n for n in sorted(keys, reverse=True) if n < end and keys[n] == keys[end]), None)
    if before is not None:
        for number in range(end + 1, min(last, end + _MOST_CARRIED_ON) + 1):
            if before + number - end not in keys:  # a hole in the record
                break
            keys[number] = keys[before + number - end]
    return keys


def _is_extra(calls: Mapping[int, Numbered], others: Mapping[int, Numbered], at: int) -> bool:
    """True where the call at `at` is superfluous: the peers' call at `at` is the rank's next."""
    follows = at + 1 in calls and calls[at + 1][0] == others[at][0]
    swapped = at + 1 in others and calls[at][0] == others[at + 1][0]
    return follows and not swapped

"""A rank's records as calls, groups and its end: flight-recorder dumps of NCCL (torch 2.4 and later) and gloo (2.13 and
later), JSON or pickle, and capture's files, the sidecar and the stacks requested while it hung.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Annotated

from msgspec import Meta, Struct

from ddprof.flight_recorder import Dimensions, Dump, Recorded, RecordedGroup
from ddprof.readers.side_files.lenient import ranks_of
from ddprof.sidecar import Count, Rank
from ddprof.slices.hangs.model import UNKNOWN_OP, Call, Ending, Group, StackFrame

_MESSAGE = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)$")  # numbers of the ranks inside the group
_MS = 1_000_000  # ns


def groups_in(dump: Dump) -> dict[str, Group]:
    """The groups of a dump by name; for gloo, whose configuration is empty, from the entries."""
    by_name = {
        name: Group(name, _description(group.desc), _ranks(group)) for name, group in dump.pg_config.items() if name
    }
    unnamed = _ranks(dump.pg_config[""]) if "" in dump.pg_config else ()
    for entry in dump.entries:
        name, description = _label(entry)
        if name not in by_name:
            # A configuration without names is that of the whole job.
            whole = description == "default_pg" or name in ("", "0")
            by_name[name] = Group(name, _description(description), unnamed if whole else ())
    return by_name


def calls_in(dump: Dump, groups: Mapping[str, Group]) -> tuple[Call, ...]:
    """Calls in the order in which they were made. `groups`: give the ranks of a message."""
    messages: Counter[tuple[str, str, int, int]] = Counter()
    calls: list[tuple[Recorded, Call]] = []
    from_the_start = not dump.entries or not dump.entries[0].record_id  # else messages cannot be counted
    for name, entries in _by_group(dump.entries).items():
        ranks = groups[name].ranks if name in groups else ()
        for batch in _batches(entries):
            done = _done(batch[-1])
            if batch[-1].is_p2p and from_the_start:
                calls += [_message(entry, name, ranks, done, messages) for entry in batch if _ends(entry)]
            elif not batch[-1].is_p2p:
                calls.append(_collective(batch, name, done))
    order = {id(entry): at for at, entry in enumerate(dump.entries)}
    return tuple(call for _, call in sorted(((order[id(e)], c) for e, c in calls), key=lambda pair: pair[0]))


def _by_group(entries: Sequence[Recorded]) -> dict[str, list[Recorded]]:
    by_group: dict[str, list[Recorded]] = {}
    for entry in entries:
        by_group.setdefault(_label(entry)[0], []).append(entry)
    return by_group


def _batches(entries: Sequence[Recorded]) -> list[list[Recorded]]:
    """Entries launched together, which share a number; the last one stands for all of them."""
    numbered = groupby(entries, key=lambda e: (bool(e.is_p2p), e.p2p_seq_id if e.is_p2p else e.collective_seq_id))
    return [list(batch) for _, batch in numbered]


def _collective(batch: Sequence[Recorded], group: str, done: bool) -> tuple[Recorded, Call]:
    first = batch[0]
    several = len(batch) - ("coalesced" in _op(batch[-1]))
    op = _op(first) if several < 2 else f"{_op(first)} (first of {several} coalesced)"
    return first, _call(first, group, first.collective_seq_id or 0, op, done)


def _message(
    entry: Recorded, group: str, ranks: Sequence[int], done: bool, counts: Counter[tuple[str, str, int, int]]
) -> tuple[Recorded, Call]:
    """One message of a batch; the counts number the messages between the same two ranks."""
    ends = _ends(entry)
    if ends is None:
        raise ValueError("not a message")
    op, own_rank, other = ends
    own_rank, other = (ranks[rank] if rank < len(ranks) else rank for rank in (own_rank, other))
    counts[group, op, own_rank, other] += 1
    return entry, _call(entry, group, counts[group, op, own_rank, other], op, done, other)


def _call(entry: Recorded, group: str, number: int, op: str, done: bool, peer: int | None = None) -> Call:
    return Call(
        group=group,
        number=number,
        op=op,
        done=done,
        started=None if _is_gloo(entry) or entry.state is None else entry.state != "scheduled",
        peer=peer,
        input_sizes=entry.input_sizes,
        output_sizes=entry.output_sizes,
        input_dtypes=entry.input_dtypes,
        output_dtypes=entry.output_dtypes,
        entered_ns=entry.time_created_ns,
        timeout_ns=entry.timeout_ms * _MS if entry.timeout_ms else None,
        frames=tuple(StackFrame(f.filename or "?", f.line or 0, f.name or "") for f in entry.frames),
    )


def _done(entry: Recorded) -> bool:
    """True for calls that NCCL completed (a call that it retired otherwise has timed out), or gloo retired."""
    if _is_gloo(entry):
        return bool(entry.retired)
    return entry.state == "completed" or entry.time_discovered_completed_ns is not None


def _ends(entry: Recorded) -> tuple[str, int, int] | None:
    """("send" or "recv", own number in the group, the other's); None for the record that closes a batch of messages."""
    match = _MESSAGE.search(entry.profiling_name or "")
    return (match[1], int(match[2]), int(match[4])) if match else None


def _is_gloo(entry: Recorded) -> bool:
    return (entry.profiling_name or "").startswith("gloo:")


def _op(entry: Recorded) -> str:
    return (entry.profiling_name or UNKNOWN_OP).split(":")[-1]


def _label(entry: Recorded) -> tuple[str, str]:
    return (entry.process_group[0], entry.process_group[1]) if len(entry.process_group) > 1 else ("", "")


def _description(text: str | None) -> str:
    return "" if text in (None, "undefined") else str(text)


def _ranks(group: RecordedGroup) -> tuple[int, ...]:
    """The ranks of a group in order; () where an entry is not a rank."""
    return tuple(sorted(ranks_of(group) or ()))


# Functions that make one collective of that name, of the tensor that the log keeps; others have other names in a dump.
_ONE_COLLECTIVE = ("all_reduce", "broadcast", "reduce", "all_gather", "barrier")
# Of torch.dtype in a dump (c10::toString(ScalarType)).
_DTYPES = {
    "torch.float32": "Float",
    "torch.float64": "Double",
    "torch.float16": "Half",
    "torch.bfloat16": "BFloat16",
    "torch.int64": "Long",
    "torch.int32": "Int",
    "torch.int16": "Short",
    "torch.int8": "Char",
    "torch.uint8": "Byte",
    "torch.bool": "Bool",
}
_HOW = {"exit": "finished", "signal": "stopped", "watchdog": "stopped", "killed": "killed", "running": "running"}


Frames = Annotated[tuple[StackFrame, ...], Meta(max_length=1024)]  # innermost first


class LeftError(Struct, frozen=True):
    """The exception that ended a rank."""

    type: str = ""
    message: str = ""
    frames: Frames = ()


class LeftEnd(Struct, frozen=True):
    """Time and kind of a rank's end; `frames`: the training thread's stack of a stopped rank."""

    at_ns: Count | None = None
    error: LeftError | None = None
    frames: Frames = ()


class LeftCall(Struct, frozen=True):
    """One call of torch.distributed; `peer`: the other rank of a message, `sequence`: the group's number, or 0."""

    group: str = ""
    number: Count = 0
    sequence: Count = 0
    op: str = UNKNOWN_OP
    peer: Rank | None = None
    size: Dimensions | None = None
    dtype: str = ""
    entered_ns: Count | None = None
    left_ns: Count | None = None
    done: bool = False
    line: StackFrame | None = None


class LeftGroup(Struct, frozen=True):
    """A process group that the rank is a member of."""

    name: str = ""
    desc: str | None = None
    ranks: tuple[Rank, ...] = ()


class Left(Struct, frozen=True):
    """A sidecar, or a rank's answer to a request for its stacks; they share these keys."""

    rank: Rank | None = None
    host: str = ""
    restart: Count = 0
    world_size: Rank | None = None
    state: str = ""
    at_ns: Count | None = None
    steps_total: Count | None = None
    process_groups: tuple[LeftGroup, ...] = ()
    calls: Annotated[tuple[LeftCall, ...], Meta(max_length=2**16)] = ()
    frames: Frames = ()
    end: LeftEnd | None = None
    flight_recorder: Dump | None = None


def groups_of(left: Left) -> dict[str, Group]:
    """The groups by name."""
    return {
        g.name: Group(g.name, g.desc if g.desc and g.desc != "undefined" else "", g.ranks) for g in left.process_groups
    }


def calls_of(left: Left) -> tuple[Call, ...]:
    """The calls still on record, oldest first."""
    return tuple(
        Call(
            group=call.group,
            number=call.number,
            op=call.op,
            done=call.done,
            peer=call.peer,
            input_sizes=() if call.size is None else (call.size,),
            input_dtypes=(call.dtype,) if call.dtype else (),
            entered_ns=call.entered_ns,
            left_ns=call.left_ns,
            frames=(call.line,) if call.line else (),
        )
        for call in left.calls
    )


def as_recorded(left: Left) -> tuple[Call, ...]:
    """The calls in a flight recorder's numbers and words, without those of DDP and FSDP; () without such numbers."""
    numbered = zip(left.calls, calls_of(left), strict=True)
    return tuple(
        call if call.peer is not None else _recorded(call, of.sequence)
        for of, call in numbered
        if of.peer is not None or of.sequence
    )


def _recorded(call: Call, number: int) -> Call:
    if call.op not in _ONE_COLLECTIVE:
        return replace(call, number=number, op=UNKNOWN_OP, input_sizes=(), input_dtypes=())
    return replace(call, number=number, input_dtypes=tuple(_DTYPES.get(d, "Undefined") for d in call.input_dtypes))


def ending_of(left: Left) -> Ending:
    """The rank's end."""
    end = left.end or LeftEnd()
    if end.error is not None:
        error = end.error
        return Ending("error", end.at_ns, error.type, error.message, error.frames)
    return Ending(_HOW.get(left.state, "unknown"), end.at_ns, frames=end.frames)

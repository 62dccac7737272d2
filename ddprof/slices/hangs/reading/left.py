"""Capture's files on a rank's end: the sidecar, and the stacks requested while it hung."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from ddprof.flight_recorder import Dimensions, Dump
from ddprof.sidecar import Count, Rank
from ddprof.slices.hangs.model import UNKNOWN_OP, Call, Ending, Group, StackFrame

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
    """One call of a function of torch.distributed; `peer` is the other rank of a message, `sequence` the group's own
    number of a collective, 0 where unknown.
    """

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
    """The calls still on record in a flight recorder's numbers and words, without those of DDP and FSDP; () where the
    groups' own numbers are unknown.
    """
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

"""One event of Chrome's trace format as PyTorch's profiler (Kineto) writes it, typed for msgspec.

Only the arguments that are used are named: the decoder skips all others without making objects of them. Every field
accepts any JSON value, as vendors write numbers as strings; the columns check them a block at a time.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec

from ddprof.tables import NULL


class Args(msgspec.Struct, gc=False):
    """The used arguments. Missing integers are `tables.NULL`."""

    external_id: Any = msgspec.field(default=NULL, name="External id")
    correlation: Any = NULL
    stream: Any = NULL
    device: Any = NULL
    external_id_old: Any = msgspec.field(default=NULL, name="external id")
    serial: Any = msgspec.field(default=NULL, name="Ev Idx")
    bytes: Any = NULL
    size: Any = NULL
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Concrete Inputs")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_nelems: Any = msgspec.field(default=NULL, name="In msg nelems")
    out_nelems: Any = msgspec.field(default=NULL, name="Out msg nelems")
    group_size: Any = msgspec.field(default=NULL, name="Group size")
    dtype: Any = None
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    rank_start: Any = msgspec.field(default=NULL, name="Global rank start")
    rank_stride: Any = msgspec.field(default=NULL, name="Global rank stride")
    seq: Any = msgspec.field(default=NULL, name="Seq")
    rank: Any = msgspec.field(default=NULL, name="Rank")
    of_rank: Any = msgspec.field(default=NULL, name="rank")
    src: Any = msgspec.field(default=NULL, name="Src Rank")
    dst: Any = msgspec.field(default=NULL, name="Dst Rank")
    reserved: Any = msgspec.field(default=NULL, name="Total Reserved")
    allocated: Any = msgspec.field(default=NULL, name="Total Allocated")
    device_id: Any = msgspec.field(default=NULL, name="Device Id")
    device_type: Any = msgspec.field(default=NULL, name="Device Type")
    name: Any = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `dur` are microseconds as written: int, float, str, or Decimal from the exact decoder."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


NO_ARGS = Args()


def event_from_json(value: dict[str, Any]) -> Event | None:
    """An event from a JSON object, without members of the wrong type; None without "ph" and "ts"."""
    if not ("ph" in value or "ts" in value):
        return None
    args = value.get("args")
    return Event(
        ph=as_text(value.get("ph")) or "",
        cat=as_text(value.get("cat")) or "",
        name=as_text(value.get("name")) or "",
        ts=value.get("ts"),
        dur=value.get("dur"),
        pid=as_identifier(value.get("pid")),
        tid=as_identifier(value.get("tid")),
        args=_args(args) if isinstance(args, dict) else None,
    )


def _args(value: dict[str, Any]) -> Args:
    given = {name: value[key] for name, key in _ARGUMENTS.items() if key in value}
    raw = {name: msgspec.Raw(_json(given[name])) for name in _RAW if name in given}
    return Args(**{**given, **raw})


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str, separators=(",", ":")).encode()


def as_text(value: Any) -> str | None:
    """A name as written, or a number as its digits; None for what cannot be a name."""
    if type(value) is str:  # nearly all: a union of types is made anew at every call of isinstance
        return value
    return str(value) if isinstance(value, _NAMES) and not isinstance(value, bool) else None


def as_identifier(value: Any) -> int | str | float | None:
    """A process or thread as written; None for what cannot be one."""
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, int | str | float) and not isinstance(value, bool) else None


_NAMES = (str, int, float, Decimal)
_ARGUMENTS = {field.name: field.encode_name for field in msgspec.structs.fields(Args)}
_RAW = ("dims", "types", "values")

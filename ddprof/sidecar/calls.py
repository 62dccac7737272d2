"""Purposes of a rank's communication: buffers that its models synchronise, collectives that its script calls."""

from __future__ import annotations

from msgspec import Struct

from ddprof.sidecar.bounded import Count, Whole


class ModelBuffers(Struct, frozen=True):
    """Buffers of a model that DistributedDataParallel keeps equal: batch statistics, tables, masks."""

    largest: str | None = None  # its name
    largest_bytes: Count = 0


class ScriptCall(Struct, frozen=True, gc=False):
    """A collective that the script called in a trace window. `through`: the library function between its line and the
    call, "package function"; "" where the line calls the collective itself.
    """

    op: str
    entered_ns: Count
    file: str = ""
    line: Whole = 0
    function: str = ""
    through: str = ""


class CallingLine(Struct, frozen=True, gc=False):
    """A line that called a collective on tensors of one shape among the job's last calls; `size`: of the tensor;
    `steps` that have such calls, which held the script for `taken_ns` in all (None: not recorded)."""

    op: str
    from_ns: Count
    to_ns: Count
    calls: Whole = 0
    steps: Whole = 0
    taken_ns: Count | None = None
    size: tuple[Whole, ...] | None = None
    dtype: str = ""
    file: str = ""
    line: Whole = 0
    function: str = ""
    through: str = ""


class WrappedModel(Struct, frozen=True):
    """One of the job's models, by how it is wrapped ("ddp", "fsdp1", "fsdp2", "deepspeed", "module")."""

    kind: str = ""

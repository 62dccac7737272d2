"""The data model: a rank's trace, and the columns of every table made from it.

`RankTrace` is one rank as columns, straight from a reader. Facts, job tables and the report are built from it and only
from it. Times are int64 nanoseconds on the rank's own clock (unix time where the trace states its base). Missing is
`tables.NULL` in memory and null on disk, never -1 or 0.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddprof.flight_recorder import Recorded
from ddprof.sidecar import Sidecar
from ddprof.tables import Column, Schema, Table
from ddprof.untrusted.plain_text import clean


class Kind(enum.IntEnum):
    """The kind of an event; readers map every vendor's categories onto these."""

    CPU_OP = 0  # an operator on a host thread (aten::, autograd, c10d::)
    ANNOTATION = 1  # record_function, ProfilerStep, NVTX on a host thread
    GPU_ANNOTATION = 2  # the projection of an annotation on a device stream: never device work itself
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    RUNTIME = 6  # CUDA / HIP runtime and driver calls on a host thread
    PYTHON = 7  # python_function frames, Python GC
    SYNC = 8  # cuda_sync activity: a wait, not work
    OVERHEAD = 9  # profiler overhead (buffer flushes, command buffer full)
    OTHER = 10


DEVICE_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)

EVENTS = Schema(
    "events",
    Column("kind", "uint8", "model.Kind"),
    Column("name", "int32", "index into RankTrace.strings"),
    Column("track", "int32", "row of the tracks table"),
    Column("ts_ns", "int64", "start"),
    Column("dur_ns", "int64", "duration, >= 0"),
    Column("correlation", "int64", "joins a runtime call and the device operation it launched", nullable=True),
    Column(
        "external_id",
        "int64",
        "joins a device operation or runtime call and the CPU operator above it",
        nullable=True,
    ),
)

TRACKS = Schema(
    "tracks",
    Column("pid", "str", "process as written in the trace; the device number for device tracks"),
    Column("tid", "str", "thread as written in the trace; the stream number for device tracks"),
    Column("name", "str", "thread_name metadata, '' if there is none"),
    Column("device", "int64", "device index of a device track", nullable=True),
    Column("stream", "int64", "stream of a device track", nullable=True),
)

COLLECTIVES = Schema(
    "collectives",
    Column(
        "row", "int64", "event that carries the arguments: a record_param_comms operator, a kernel or an annotation"
    ),
    Column("op", "int32", "index into strings: the collective name as written (allreduce, _allgather_base, send, ...)"),
    Column("group", "int32", "index into RankTrace.process_groups; missing: -2147483648"),
    Column("seq", "int64", "sequence number within the group", nullable=True),
    Column("in_bytes", "int64", "input message of this rank", nullable=True),
    Column("out_bytes", "int64", "output message of this rank", nullable=True),
    Column("dtype", "int32", "index into strings; '' if unknown"),
    Column("group_size", "int64", "ranks in the group", nullable=True),
    Column("src", "int64", "source rank of a point-to-point operation, global where known", nullable=True),
    Column("dst", "int64", "destination rank of a point-to-point operation, global where known", nullable=True),
)

MESSAGE_CALLS = Schema(
    "message_calls",
    Column("row", "int64", "c10d operator that sends or receives one message"),
    Column("peer", "int64", "the other rank's place in the group; missing: received from anybody", nullable=True),
    Column("tag", "int64", "what tells messages of one pair apart", nullable=True),
)

COPIES = Schema(
    "copies",
    Column("row", "int64", "memcpy or memset event"),
    Column("size_bytes", "int64", "bytes moved", nullable=True),
)

OPERATORS = Schema(
    "operators",
    Column("row", "int64", "CPU operator with recorded shapes"),
    Column("dims", "int32", "index into strings: JSON text of 'Input Dims'"),
    Column("types", "int32", "index into strings: JSON text of 'Input type'"),
)

MEMORY = Schema(
    "memory",
    Column("ts_ns", "int64", "when"),
    Column("device", "int64", "device index; missing for host memory", nullable=True),
    Column("allocated_bytes", "int64", "held by tensors", nullable=True),
    Column("reserved_bytes", "int64", "held by the caching allocator", nullable=True),
)


LOST_RECORDS = Schema(
    "lost_records",
    Column("start_ns", "int64", "start of the last record before them on their thread"),
    Column("end_ns", "int64", "start of the next one"),
    Column("count", "int64", "records of the host between the two that are missing, by the numbers of the others"),
)

# What the host threads ran, by the line of the script: Python frames of the trace, or samples of a running process.
SCRIPT_FRAMES = Schema(
    "script_frames",
    Column("file", "str", "as recorded, without a prefix of sys.path; '' for what is not written in Python"),
    Column("line", "int64", "traced: where the function is defined; sampled: the line it was in most", nullable=True),
    Column("function", "str", "function, method or built-in"),
    Column("is_user", "bool", "the user's own code: no library, launcher or part of Python"),
    Column("is_generator", "bool", "a function that yields, by its samples; never known of traced frames"),
)

SCRIPT_STACKS = Schema(
    "script_stacks",
    Column("frame", "int64", "row of script_frames: the innermost function"),
    Column("outer", "int64", "row of script_stacks that called it, an earlier one", nullable=True),
)

SCRIPT_SPANS = Schema(
    "script_spans",
    Column("start_ns", "int64", "from here the thread is in this stack"),
    Column("end_ns", "int64", "to here; the spans of one thread do not overlap"),
    Column("track", "int32", "host thread, as a row of the tracks table"),
    Column("stack", "int64", "row of script_stacks"),
    Column("resolution_ns", "int64", "0: traced; else the time between two samples, for which one sample stands"),
)

# Calls of nn.Module, which torch.profiler records beside the Python frames (with_stack=True).
MODULE_STACKS = Schema(
    "module_stacks",
    Column("name", "str", "class and number of the innermost module: Linear_3"),
    Column("outer", "int64", "row of module_stacks that called it, an earlier one", nullable=True),
)

MODULE_SPANS = Schema(
    "module_spans",
    Column("start_ns", "int64", "from here the thread is in this module's call"),
    Column("end_ns", "int64", "to here; the spans of one thread do not overlap"),
    Column("track", "int32", "host thread, as a row of the tracks table"),
    Column("stack", "int64", "row of module_stacks"),
)

SCRIPT_TOTALS = Schema(
    "script_totals",
    Column("thread", "str", "'': the training thread; else another thread's name, or 'worker N' of the loader"),
    Column("phase", "str", "what the training thread was in: data, ..., rest (between them), or start-up"),
    Column("stack", "int64", "row of script_stacks"),
    Column("samples", "int64", "how often it was seen there, over the whole run"),
    Column("time_ns", "int64", "the time that these samples stand for"),
    Column("late_ns", "int64", "time for which the training thread did not answer: it, or this one, held the GIL"),
    Column("steps", "int64", "the steps in which it was seen there; of old recordings a lower bound"),
)


@dataclass(frozen=True)
class HealthNote:
    """A defect of the input: which rank (None: the run), the defect, and what cannot be concluded because of it.

    `where`: the given file or folder that the note is about; "" for a note on one run or all runs.
    """

    issue: str
    effect: str
    severity: str = "warning"  # "info" | "warning" | "error"
    rank: int | None = None
    where: str = ""

    def __post_init__(self) -> None:
        """Make both texts one printable line, as they may hold names from outside."""
        object.__setattr__(self, "issue", clean(self.issue))
        object.__setattr__(self, "effect", clean(self.effect))


@dataclass(frozen=True)
class ProcessGroup:
    """A process group as the trace names it. `ranks` is () where the trace states them in part or not at all."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()
    size: int | None = None
    backend: str = ""


@dataclass(frozen=True)
class Identity:
    """The writer of the trace and the source of that knowledge.

    `source`: "distributedInfo" | "sidecar" | "file name" | "content" | "order".
    """

    rank: int | None
    source: str
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    backend: str | None = None
    local_device: int | None = None


@dataclass(frozen=True)
class Device:
    """The accelerator of the rank. `kind` is "cuda" (NVIDIA), "rocm" (AMD), "npu", "xpu", "mtia", "cpu", "unknown"."""

    kind: str
    name: str | None = None
    total_memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class RankTrace:
    """One rank's trace as columns. `events` is sorted by start, the longest first among equals; sparse argument tables
    point into it by row.
    """

    identity: Identity
    device: Device
    path: str
    format: str  # "kineto", "nsys", "horovod", ...
    has_base_time: bool  # ts_ns is unix time
    strings: tuple[str, ...]
    events: Table
    tracks: Table
    collectives: Table
    message_calls: Table
    copies: Table
    operators: Table
    memory: Table
    lost_records: Table = field(default_factory=LOST_RECORDS.empty)
    script_spans: Table = field(default_factory=SCRIPT_SPANS.empty)
    script_stacks: Table = field(default_factory=SCRIPT_STACKS.empty)
    script_frames: Table = field(default_factory=SCRIPT_FRAMES.empty)
    script_totals: Table = field(default_factory=SCRIPT_TOTALS.empty)
    module_spans: Table = field(default_factory=MODULE_SPANS.empty)
    module_stacks: Table = field(default_factory=MODULE_STACKS.empty)
    process_groups: tuple[ProcessGroup, ...] = ()
    sidecar: Sidecar = field(default_factory=Sidecar)  # what our own capture knows; empty elsewhere
    flight_recorder: tuple[Recorded, ...] = ()  # entries of a flight-recorder dump of the same window
    # Small header values worth keeping (versions, record_shapes, ...).
    top: Mapping[str, Any] = field(default_factory=dict)
    health: tuple[HealthNote, ...] = ()


# Bytes of one element, by the names of c10::ScalarType and by the C++ names that shapes are recorded with.
ELEMENT_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("complexdouble", "c10::complex<double>"), 16),
    **dict.fromkeys(("double", "long", "long int", "int64", "float64", "int64_t", "uint64", "long unsigned int"), 8),
    **dict.fromkeys(("complexfloat", "c10::complex<float>"), 8),
    **dict.fromkeys(("float", "int", "int32", "float32", "uint32", "unsigned int"), 4),
    **dict.fromkeys(("complexhalf", "c10::complex<c10::half>"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "short int", "c10::half", "c10::bfloat16", "float16", "int16"), 2),
    **dict.fromkeys(("uint16", "short unsigned int"), 2),
    **dict.fromkeys(("byte", "char", "bool", "uint8", "int8", "unsigned char", "signed char", "float8"), 1),
    **dict.fromkeys(("float4_e2m1fn_x2", "c10::float4_e2m1fn_x2"), 1),  # two numbers
}
_FLOAT8 = re.compile(r"^(?:c10::)?float8_", re.IGNORECASE)


def element_bytes(dtype: str) -> int | None:
    """Bytes per element of a dtype as traces name it; None for an unknown name."""
    if _FLOAT8.match(dtype):
        return 1
    return ELEMENT_BYTES.get(dtype.lower())

"""Meaning of event names: one table for kernels, collectives and host activity of every vendor.

Names drift between releases (HTA issue 360: `ncclKernel_*` became `ncclDevKernel_*`), so each pattern states where it
was seen and everything is matched once per distinct name, not once per event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from ddprof.analyzers.facts.model import SPANS
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Schema, Table, among

ENGINE = "autograd::engine::evaluate_function: "  # before the node that autograd runs
INFERRED = "inferred rendezvous"  # of ranks that stood still and resumed together; no event records it
COLLECTIVE_OPS = (
    "unknown",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
    "send",
    "recv",
    "send_recv",
    "barrier",
    INFERRED,
)
OP_CODE = {name: code for code, name in enumerate(COLLECTIVE_OPS)}
POINT_TO_POINT = tuple(OP_CODE[name] for name in ("send", "recv", "send_recv"))
# A member may leave before the others are done, so the shortest member's duration is not the transfer.
ROOTED = tuple(OP_CODE[name] for name in ("broadcast", "reduce", "gather", "scatter"))

REMEMBERED = 2**14  # answers about names: those of a trace to all patterns, in 2 MB
RANKS_NAMES = 2**6  # answers about all names of a rank: to all patterns, as the next rank mostly has the same names

# Order matters: the first pattern that matches wins.
_OP_PATTERNS: tuple[tuple[str, str], ...] = (
    ("reduce_scatter", r"reduce[_-]?scatter"),
    ("all_to_all", r"all[_-]?to[_-]?all|dispatch|combine"),
    ("all_reduce", r"all[_-]?reduce|cross_device_reduce|multimem_(all_)?reduce|(one|two)_shot|pushpull"),
    ("all_gather", r"all[_-]?gather"),
    ("barrier", r"barrier"),
    ("broadcast", r"broadcast"),
    ("send_recv", r"send_?recv|coalesced|sendrecv|collective-permute"),
    ("reduce", r"reduce"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("recv", r"recv"),
    ("send", r"send"),
)
_OP_REGEX = tuple((OP_CODE[op], re.compile(pattern, re.IGNORECASE)) for op, pattern in _OP_PATTERNS)


COMPILED = re.compile(r"^Torch-Compiled Region|CompiledFxGraph|^CompiledFunction|^TorchDynamo")  # host ranges
PIPELINE_GROUP = re.compile(r"(^|[_\W])(pp|pipe(line)?)([_\W\d]|$)|pipeline_model|PIPELINE", re.IGNORECASE)
_CHECKPOINT = re.compile(
    r"checkpoint|ckpt|state_dict|torch[._]save|torch[._]load|save_model|save_state|save_pretrained|\bevaluat|\bvalidat"
    r"|^eval\b|tensorboard|wandb|mlflow|\blog_metrics|\blogging\b",
    re.IGNORECASE,
)
_NOT_CHECKPOINT = re.compile(
    r"activation|recompute|CheckpointFunction|CheckpointWrapper|checkpoint_wrapped|^nccl:|^gloo:", re.IGNORECASE
)


def matches(regex: re.Pattern[str], strings: Sequence[str]) -> Array:
    """Mask of the strings in which the pattern occurs; shape (strings,)."""
    return _occurrences(regex, tuple(strings))


@lru_cache(maxsize=RANKS_NAMES)
def _occurrences(regex: re.Pattern[str], strings: tuple[str, ...]) -> Array:
    occurs = np.fromiter((_occurs(regex, s) for s in strings), bool, len(strings))
    occurs.flags.writeable = False
    return occurs


def _naming(pattern: str, flags: int = re.IGNORECASE) -> Callable[[Sequence[str]], Array]:
    """`matches` with a fixed pattern."""
    return partial(matches, re.compile(pattern, flags))


@lru_cache(maxsize=REMEMBERED)
def _occurs(regex: re.Pattern[str], string: str) -> bool:
    """True where the pattern occurs in a name; cached, as all ranks of a job share their names."""
    return regex.search(string) is not None


# Names by what they mean: each takes strings and returns which of them do; bool, shape (strings,).
# copies from the host to the device
is_to_device = _naming(r"HtoD|HostToDevice|H2D")
# copies from the device to the host
is_from_device = _naming(r"DtoH|DeviceToHost|D2H")
# kernel names that move data between ranks
is_comm_kernel = _naming(
    r"^(?:void\s+)?(?:"
    r"nccl(?:Dev)?Kernel|ncclKern|ncclSymk|nccl_|nccl:"  # NCCL < 2.19, >= 2.19, symmetric kernels >= 2.27
    r"|rccl|mscclpp|mscclKernel|msccl"  # RCCL and MSCCL on AMD
    r"|hccl|hcom_"  # Ascend
    r"|(?:one)?ccl_|onecclKernel|sycl.*allreduce|Rt64_"  # Intel
    r"|deep_?ep|nvshmem|(?:.*::)?(?:internode|intranode)::(?:dispatch|combine|notify)"  # expert-parallel libraries
    r"|(?:.*::)?cross_device_reduce|(?:.*::)?(?:multimem|one_shot|two_shot|stream_write)_?all_?reduce"  # custom ones
    r"|(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start|-done)?(?:\.\d+)*$"  # XLA
    r"|horovod|gloo:|mpi[:_])"
)
# annotations that wrap one collective (`nccl:all_reduce`, `gloo:broadcast`)
is_comm_annotation = _naming(r"^(?:nccl|gloo|mpi|ucc|hccl|xccl|rccl):")
# host ranges in which the next batch is fetched
is_dataloader = _naming(
    r"^enumerate\(DataLoader\)|^enumerate\(DataPipe\)|^ddprof::data$|data_?loader|dataload|next_batch|get_batch"
    r"|fetch_batch|load_batch|\[pl\]\[profile\].*(?:train_)?dataloader_next|\.train_dataloader_next"
)
# host ranges in which a batch is fetched to evaluate, as capture names them
is_evaluation_fetch = _naming(r"^ddprof::evaluation_data$", 0)
# fetches of batches that worker processes made
is_fetch_from_workers = _naming(r"MultiProcessing")
# runtime calls that block the host until the device has caught up
is_sync_call = _naming(
    r"^(?:cuda|hip|cu|acl|aclrt|mu|xpu)\w*Synchronize(?:_v\d+)?$|^(?:cuda|hip)Memcpy(?:2D|DtoH|HtoD|ToSymbol|FromSymbol)?$"
    r"|^cuMemcpy(?:DtoH|HtoD)(?:_v2)?$|^hipMemcpyWithStream$|^zeEventHostSynchronize$|^zeCommandListHostSynchronize$"
    r"|^ur(?:QueueFinish|EventWait)$",  # SYCL's unified runtime, on Intel
    0,
)
# runtime calls that allocate or free device or pinned memory
is_allocator_call = _naming(
    r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostFree|MallocHost|FreeHost|ExtMallocWithFlags|MallocManaged)(?:_v\d+)?$"
    r"|^cuMem(?:Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree|Alloc|Free)(?:_v2)?$|^aclrtMalloc|^aclrtFree"
    r"|^urUSM(?:DeviceAlloc|SharedAlloc|HostAlloc|Free)$|^zeMem(?:Alloc|Free)",
    0,
)
# host ranges in which a model is in evaluation mode, as capture names them
is_evaluation = _naming(r"^ddprof::evaluation$", 0)
# Python garbage collection
is_gc = _naming(r"^Python GC$|^ddprof::gc$|^gc\.collect|\bgc:? ?collect|^gc$")
# runtime calls that make one stream wait for another
is_wait_event = _naming(r"^(?:cuda|hip|cu)StreamWaitEvent$", 0)
is_launch = _naming(r"launch\w*kernel|kernel\w*launch")  # runtime calls that launch a kernel
# kernels that are matrix products or convolutions. Inductor names pointwise kernels and sums, too, after all that they
# follow (triton_poi_fused_convolution_relu_0 adds the bias); lgamma is no mma, convert no convolution.
is_gemm = _naming(
    r"^(?!triton_(?:poi|per|red|for)_).*(?:gemm|nvjet|cutlass|xmma|cublas|cijk|matmul|wgmma|conv(?!ert|ersion|ex)"
    r"|wgrad|dgrad|fprop|winograd|(?<!ga)mma_|tensorop|_[a-z]\d*cudnn_)",
    re.IGNORECASE | re.DOTALL,
)


def is_checkpoint(strings: Sequence[str]) -> Array:
    """Mask of ranges that save or load state, evaluate, or write logs; not activation checkpointing."""
    return matches(_CHECKPOINT, strings) & ~matches(_NOT_CHECKPOINT, strings)


@lru_cache(maxsize=REMEMBERED)
def collective_op(name: str) -> int:
    """The canonical operation (index into COLLECTIVE_OPS) of a collective, kernel or annotation name."""
    for code, regex in _OP_REGEX:
        if regex.search(name):
            return code
    return OP_CODE["unknown"]


# Events of a trace by kind and name: their rows, in the order of start and of equals the longest first, and times.


def rows_of(trace: RankTrace, kind: Kind, named: Array, threads: Array | None = None) -> Array:
    """Rows of the events of a kind with some names (mask of the trace's strings), on some host tracks or on all."""
    events = trace.events
    rows: Array = _of_kind(trace, kind) if named.any() else np.empty(0, np.int64)
    rows = rows[named[events["name"][rows]]]
    return rows if threads is None else rows[among(events["track"][rows], threads)]


@remembered
def _of_kind(trace: RankTrace, kind: Kind) -> Array:
    """Rows of the events of a kind."""
    return np.flatnonzero(trace.events["kind"] == kind)


def times(events: Table, rows: Array | slice = slice(None)) -> Intervals:
    """Start and end of each event, or of some (rows or a mask), ns."""
    start = events["ts_ns"][rows]
    return start, start + events["dur_ns"][rows]


def spans_table(trace: RankTrace, rows: Array, schema: Schema = SPANS) -> Table:
    """SPANS, or NAMED_SPANS, of some events (rows)."""
    (start, end), name = times(trace.events, rows), trace.events["name"][rows]
    columns = {"start_ns": start, "end_ns": end, "name": name}
    return schema.table({column.name: columns[column.name] for column in schema.columns})

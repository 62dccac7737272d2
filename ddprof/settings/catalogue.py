"""Every setting that can be applied: its owner, its valid values, and its effect on results.

Standard library only: read by `ddprof run`, and in the training processes that it starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

Value = bool | int | float | str

LOADER = "DataLoader"
DDP = "DistributedDataParallel"
FSDP1 = "FullyShardedDataParallel"
FSDP2 = "fully_shard"
OPTIMIZER = "optimizer"
ZERO_GRAD = "zero_grad"  # a call, not an object: its own line is the place
DEEPSPEED = "DeepSpeed"
# These are set on a finished wrapper, not by its constructor: each apart, as each becomes known at another moment.
COMM_HOOK = "communication hook of DDP"
PREFETCHING = "prefetching of fully_shard"
AUTOCAST = "call of a wrapped model"
COMPILE = "compilation of a wrapped model"
# What the script makes for them, in words.
_WRAPPER = f"{DDP}, {FSDP1} or {FSDP2}"
MADE_FOR = {
    ZERO_GRAD: "call of Optimizer.zero_grad",
    COMM_HOOK: DDP,
    PREFETCHING: FSDP2,
    AUTOCAST: _WRAPPER,
    COMPILE: _WRAPPER,
}
PROCESS = "process"  # of a rank: made by nobody, so no line of the script is its own


class Effect(str, Enum):
    """Possible effect of a setting on the numbers of a training."""

    SAME = "same"  # the same operations on the same values
    ROUNDING = "rounding"  # sums in another order, or random numbers drawn in another order
    NUMBERS = "numbers"  # another precision: only with --allow-numerics


@dataclass(frozen=True)
class ApplicableSetting:
    """One setting. `check` returns the value to use; raises ValueError with the accepted values."""

    name: str
    targets: tuple[str, ...]
    check: Callable[[Value], Value]
    effect: Effect


def _switch(value: Value) -> Value:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _only_on(value: Value) -> Value:
    if value is not True:
        raise ValueError("true")
    return value


def _whole(low: int, high: int) -> Callable[[Value], Value]:
    def check(value: Value) -> Value:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def _size(low: float, high: float) -> Callable[[Value], Value]:
    def check(value: Value) -> Value:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return value

    return check


def _word(*words: str) -> Callable[[Value], Value]:
    def check(value: Value) -> Value:
        if value not in words:
            raise ValueError(" or ".join(words))
        return value

    return check


def _plain(value: Value) -> Value:
    """Check the value of an environment variable: numbers and names only, as a path could load a foreign library."""
    text = str(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, str))
        or not re.fullmatch(r"[A-Za-z0-9_,^:=+-]{1,64}", text)
    ):
        raise ValueError("a number or a word of letters, digits and _,^:=+-")
    return text


_BIG = 1 << 40  # elements: no bucket is larger

_SETTINGS = (
    ApplicableSetting("num_workers", (LOADER,), _whole(0, 1024), Effect.ROUNDING),
    ApplicableSetting("prefetch_factor", (LOADER,), _whole(1, 1024), Effect.SAME),
    ApplicableSetting("pin_memory", (LOADER,), _switch, Effect.SAME),
    ApplicableSetting("persistent_workers", (LOADER,), _switch, Effect.ROUNDING),
    ApplicableSetting("multiprocessing_context", (LOADER,), _word("fork", "spawn", "forkserver"), Effect.SAME),
    # DDPOptimizer of torch.compile takes no bucket below 1 MB.
    ApplicableSetting("bucket_cap_mb", (DDP,), _size(1, 65536), Effect.ROUNDING),
    ApplicableSetting("first_bucket_mb", (DDP,), _size(0.001, 25), Effect.ROUNDING),
    ApplicableSetting("gradient_as_bucket_view", (DDP,), _switch, Effect.SAME),
    ApplicableSetting("static_graph", (DDP,), _switch, Effect.ROUNDING),
    ApplicableSetting("broadcast_buffers", (DDP,), _switch, Effect.SAME),
    ApplicableSetting("find_unused_parameters", (DDP,), _switch, Effect.ROUNDING),
    ApplicableSetting("reshard_after_forward", (FSDP1, FSDP2), _switch, Effect.SAME),
    ApplicableSetting("forward_prefetch", (FSDP1,), _switch, Effect.SAME),
    ApplicableSetting("backward_prefetch", (FSDP1,), _word("pre", "post", "none"), Effect.SAME),
    ApplicableSetting("limit_all_gathers", (FSDP1,), _switch, Effect.SAME),
    ApplicableSetting("forward_prefetch_units", (PREFETCHING,), _whole(1, 64), Effect.SAME),
    ApplicableSetting("backward_prefetch_units", (PREFETCHING,), _whole(1, 64), Effect.SAME),
    ApplicableSetting("fused", (OPTIMIZER,), _switch, Effect.ROUNDING),
    ApplicableSetting("foreach", (OPTIMIZER,), _switch, Effect.ROUNDING),
    ApplicableSetting("set_to_none", (ZERO_GRAD,), _switch, Effect.SAME),
    ApplicableSetting("overlap_comm", (DEEPSPEED,), _switch, Effect.SAME),
    ApplicableSetting("reduce_bucket_size", (DEEPSPEED,), _whole(1000, _BIG), Effect.ROUNDING),
    ApplicableSetting("allgather_bucket_size", (DEEPSPEED,), _whole(1000, _BIG), Effect.SAME),
    ApplicableSetting("gc_interval", (PROCESS,), _whole(1, 1_000_000), Effect.SAME),
    ApplicableSetting("omp_num_threads", (PROCESS,), _whole(1, 1024), Effect.ROUNDING),
    ApplicableSetting("cpu_affinity", (PROCESS,), _word("per-rank"), Effect.ROUNDING),
    ApplicableSetting("expandable_segments", (PROCESS,), _switch, Effect.SAME),
    ApplicableSetting("tf32", (PROCESS,), _switch, Effect.NUMBERS),
    ApplicableSetting("gradient_compression", (COMM_HOOK,), _word("bf16"), Effect.NUMBERS),
    ApplicableSetting("autocast", (AUTOCAST,), _word("bf16"), Effect.NUMBERS),
    ApplicableSetting("compile", (COMPILE,), _only_on, Effect.NUMBERS),
)
# NCCL's own settings that are known to change speed alone. None loads a library, opens a file or names a network.
_NCCL = {
    **dict.fromkeys(("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"), Effect.ROUNDING),
    **dict.fromkeys(("NCCL_PROTO", "NCCL_ALGO", "NCCL_NVLS_ENABLE", "NCCL_BUFFSIZE"), Effect.ROUNDING),
    **dict.fromkeys(("NCCL_NTHREADS", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_CROSS_NIC"), Effect.ROUNDING),
    **dict.fromkeys(("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS"), Effect.SAME),
}
NCCL_PREFIX = "NCCL_"

CATALOGUE = {
    **{setting.name: setting for setting in _SETTINGS},
    **{name: ApplicableSetting(name, (PROCESS,), _plain, effect) for name, effect in _NCCL.items()},
}

# Values of a setting that a what-if knows by another name; either name is taken everywhere.
ASKED_AS = {
    "fused=true": "optimizer=fused",
    "autocast=bf16": "precision=bf16",
    "tf32=true": "precision=tf32",
    "gradient_compression=bf16": "compression=bf16",
}
APPLIED_AS = {asked: applied for applied, asked in ASKED_AS.items()}

"""Specification of a generated run: model, cluster, parallelism, loader, noise, faults, file format. Times in us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Model:
    """The network and how the training script drives it.

    `unit_us` is the forward time of the first matmul of a layer: every other kernel is a multiple of it.
    `sync` is how the script waits for the device once per step: "item_end", "item_mid", "device_sync"; "none": never,
    so that its host runs ahead until the queue of launches is full.
    """

    arch: str = "gpt"  # "gpt" | "cnn" | "moe" (experts) | "dlrm" (embedding tables), the last two over all ranks
    layers: int = 5
    unit_us: float = 390.0
    hidden: int = 1024
    tokens: int = 4096
    params_per_layer: int = 10_000_000
    host_op_us: float = 8.5
    optimizer: str = "fused"  # "fused" | "foreach" | "single"
    tensors_per_layer: int = 12
    precision: str = "bf16"  # "bf16" | "fp32"
    sync: str = "item_end"
    batch_bytes: int = 4_000_000
    pinned: bool = True
    accumulation: int = 1
    recompute: int = 0  # every n-th layer's forward runs again in backward; 0: activations are kept
    batch_per_micro_step: bool = False  # with accumulation: a batch from the loader each time, not one split in parts


@dataclass(frozen=True)
class Cluster:
    """Who runs where, and how fast the links are. `hosts[rank]` is a name; `clocks[host]` = (offset_us, drift_ppm)."""

    hosts: tuple[str, ...]
    clocks: Mapping[str, tuple[float, float]]
    vendor: str = "nvidia"  # "nvidia" | "amd"
    device: str = "h100"  # "h100" | "a100" | "v100" | "mi300x" | "mi250"
    intra_alpha_us: float = 19.0
    intra_gbps: float = 290.0  # bus bandwidth inside a host
    inter_alpha_us: float = 28.0
    inter_gbps: float = 90.0

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.hosts)


@dataclass(frozen=True)
class Parallel:
    """Parallelism of the model. World size = dp * tp * pp (for "hsdp": dp shards * replicas)."""

    kind: str = "ddp"  # "ddp" | "fsdp" | "hsdp" | "tpdp" | "pp"
    dp: int = 4
    tp: int = 1
    pp: int = 1
    replicas: int = 1
    microbatches: int = 8
    schedule: str = "1f1b"  # "1f1b" | "gpipe" | "interleaved" | "forward" (inference)
    bucket_mb: float = 25.0
    first_bucket_mb: float = 1.0
    overlap: bool = True
    prefetch: bool = True
    reshard: bool = True
    units: int = 1  # FSDP units a layer is wrapped in
    activation_elems: int = 800_000


@dataclass(frozen=True)
class Loader:
    """DataLoader: `workers` processes of `cost_us` a batch each, delivered in order; `overhead_us` per `__next__`."""

    workers: int = 4
    prefetch: int = 2
    cost_us: float = 40_000.0
    jitter: float = 0.05
    overhead_us: float = 120.0


@dataclass(frozen=True)
class Noise:
    """Relative standard deviations of what nobody controls; `contention`: see `device.Devices`."""

    kernel: float = 0.02
    step: float = 0.003
    rank: float = 0.002
    host: float = 0.12
    comm: float = 0.01
    contention: float = 0.0


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. `strength` is its size in its own unit, `detail` the settings now and recommended."""

    id: str
    strength: float
    ranks: tuple[int, ...] = ()
    detail: Mapping[str, float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Mess:
    """One thing that makes a recording hard to read, though the job is as it is; `strength` in its own unit."""

    name: str
    strength: float = 0.0
    ranks: tuple[int, ...] = ()
    detail: Mapping[str, float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """File format of the recording."""

    layout: str = "classic"  # "classic" (Kineto's own) | "lines" (a key per line) | "compact" (one line)
    naming: str = "tb"  # "tb" | "rank" | "worker"
    seq: bool = True
    collective_args: bool = True
    names: str = "new"  # kernel names of NCCL >= 2.19 ("new") or before ("old")
    time: str = "base"  # "base" | "absolute" (no baseTimeNanoseconds) | "integer" (whole microseconds, no base)
    step_marks: bool = True
    distributed_info: bool = True
    shapes: bool = False
    stacks: bool = False
    memory: bool = False


@dataclass(frozen=True)
class Scenario:
    """Everything that determines a run; equal scenarios give equal files, byte for byte."""

    name: str
    kind: str
    seed: int
    model: Model
    cluster: Cluster
    parallel: Parallel
    loader: Loader
    noise: Noise = Noise()
    steps: int = 3
    first_step: int = 111
    faults: tuple[Fault, ...] = ()
    quirks: tuple[Fault, ...] = ()  # things that look like faults and are not worth fixing
    format: Format = Format()
    missing_ranks: tuple[int, ...] = ()
    mess: tuple[Mess, ...] = ()
    note: str = ""

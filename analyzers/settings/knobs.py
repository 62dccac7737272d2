"""Table of the settings that a what-if can change, for the command line and the dashboard.

A knob turns a value into the changes that the replay simulates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB
from ddprof.analyzers.replay.changes.communication.ddp_buckets import gradient_traffic
from ddprof.analyzers.replay.changes.loader import rank_costs
from ddprof.analyzers.replay.changes.work import (
    FUSED_DEVICE_SHARE,
    FUSED_HOST_SHARE,
    HALF_PRECISION_SPEEDUP,
    TF32_SPEEDUP,
)
from ddprof.analyzers.replay.model import DEFAULT_PREFETCH
from ddprof.analyzers.settings import present
from ddprof.analyzers.settings.present import Present, first_bucket_mb, number
from ddprof.errors import UsageError
from ddprof.finding_ids import (
    COMPUTE_PRECISION,
    COMPUTE_UNFUSED_OPTIMIZER,
    HOST_ALLOCATOR,
    HOST_CHECKPOINT,
    HOST_GC,
    HOST_LAUNCH_BOUND,
    HOST_SYNC,
    INPUT_PAGEABLE_COPY,
    INPUT_STARVED,
    INPUT_STRAGGLER,
    PIPELINE_IMBALANCE,
    STRAGGLER_COMPUTE,
    STRAGGLER_HOST,
    STRAGGLER_IMBALANCE,
    STRAGGLER_UNEXPLAINED,
)
from ddprof.findings import Change
from ddprof.settings.catalogue import ASKED_AS
from ddprof.tables import Array
from ddprof.units import MIB
from ddprof.untrusted.suggestions import meant

_PROBE = "2"  # a number that every setting takes: what raises, raises for the run, not for the value


class Setting(Struct, frozen=True):
    """A value for a knob, and the ranks it is for (() = all)."""

    key: str
    value: str
    ranks: tuple[int, ...] = ()


Maker = Callable[[Setting, Measures, Present], tuple[Change, ...]]


class Knob(Struct, frozen=True):
    """One setting of a what-if. `values`: the notation of a value; a switch has a single value.

    `is_factor`: the value is a speed-up of at most `most`. `choices`: all values, where they are a few words.
    `for_ranks`: single ranks may be given; `needs_ranks`: they must be. `mends`: ids of findings that this remedies.
    `lacks`: why it does not apply to a run; `says`: its recorded value, or the time it affects.
    """

    key: str
    words: str
    assumption: str
    values: str
    make: Maker
    is_switch: bool = False
    most: float = 8.0
    for_ranks: bool = False
    needs_ranks: bool = False
    is_factor: bool = False
    choices: tuple[str, ...] = ()
    mends: tuple[str, ...] = ()
    lacks: present.Reason | None = None
    says: present.Say | None = None

    def changes(self, setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
        """Changes that the replay simulates. Raises UsageError where the value makes no sense for this run."""
        if setting.ranks and not self.for_ranks:
            raise UsageError(f"{self.key}: cannot be changed for single ranks")
        if self.needs_ranks and not setting.ranks:
            raise UsageError(f"{self.key}: which ranks? write {self.key}={self.values}@3, or @3,7")
        unknown = [r for r in setting.ranks if r not in measures.job.rank_ids]
        if unknown:
            raise UsageError(f"{self.key}: no rank {unknown[0]} in this run")
        if self.is_switch and setting.value != self.values:
            raise UsageError(f"{self.key}={setting.value}: the only value is {self.values}")
        return self.make(setting, measures, now)

    def lacking(self, measures: Measures, now: Present) -> str:
        """Reason why the setting cannot be changed in the run, or would have no effect; "" where it can."""
        reasons = (present.has_peers if self.needs_ranks else None, self.lacks)
        for reason in reasons:
            if reason is not None and (words := reason(measures)):
                return words
        value = self.values if self.is_switch else next(iter(self.choices), _PROBE)
        ranks = measures.job.rank_ids[:1] if self.needs_ranks else ()
        try:
            self.changes(Setting(self.key, value, ranks), measures, now)
        except UsageError as error:
            return str(error).removeprefix(f"{self.key}: ")
        return ""

    def current(self, measures: Measures, now: Present) -> str:
        """The recorded value, or the time it affects; "" where the run shows neither."""
        return "" if self.says is None else self.says(measures, now)


def _faster(kind: str, inverse: bool = False) -> Maker:
    def make(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
        factor = number(setting.key, setting.value, least=0.01, most=1e6)
        value = 1 / factor if inverse else factor
        return (Change(kind, setting.ranks, (value,) * max(1, len(setting.ranks))),)

    return make


def _plain(kind: str, target: str = "") -> Maker:
    return lambda setting, measures, now: (Change(kind, setting.ranks, (), target),)


def _replace(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    """The rank's device, host and loader become its typical peer's; without a peer, its device that of other stages."""
    ids = list(measures.job.rank_ids)
    changes = []
    device = np.where(np.isfinite(measures.compute.factor), measures.compute.factor, measures.pace.factor)
    parts: tuple[tuple[str, Array], ...] = (("scale_compute", device), ("scale_host", measures.host.factor))
    for kind, factor in parts:
        factors = [float(factor[ids.index(r)]) for r in setting.ranks]
        at_least_one = tuple(f if np.isfinite(f) and f > 1 else 1.0 for f in factors)
        changes.append(Change(kind, setting.ranks, at_least_one, "peers"))
    return (*changes, Change("instant_loader", setting.ranks))


def _buckets(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    if gradient_traffic(measures) is None:
        raise UsageError("bucket_cap_mb: no all-reduce of gradients between data-parallel ranks in this run")
    cap = number(setting.key, setting.value, least=0.001, most=1e6)
    if setting.key == "bucket_cap_mb" and cap == now.bucket_cap_mb:
        return ()
    return (Change("rebucket", (), (cap * MIB, first_bucket_mb(cap) * MIB)),)


def _first_bucket(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    first = number(setting.key, setting.value, least=0.001, most=1e6)
    cap = now.bucket_cap_mb or DEFAULT_BUCKET_MIB
    if gradient_traffic(measures) is None:
        raise UsageError("first_bucket_mb: no all-reduce of gradients between data-parallel ranks in this run")
    return (Change("rebucket", (), (cap * MIB, first * MIB)),)


def _overlap(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    traffic = gradient_traffic(measures)
    if traffic is None:
        raise UsageError("overlap: no all-reduce of gradients between data-parallel ranks in this run")
    cap_mb = min(DEFAULT_BUCKET_MIB, traffic.total_bytes / 4 / MIB)
    return (Change("rebucket", (), (cap_mb * MIB, first_bucket_mb(cap_mb) * MIB)),)


def _workers(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    count = number(setting.key, setting.value, least=0, most=1024)
    return _loader(count, float(now.prefetch()), measures, now)


def _prefetch(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    deep = number(setting.key, setting.value, least=1, most=1024)
    return _loader(float(now.workers()), deep, measures, now)


def _loader(workers: float, prefetch: float, measures: Measures, now: Present) -> tuple[Change, ...]:
    had = now.workers()
    if all(cost is None for cost in rank_costs(measures, had)):
        raise UsageError(
            f"num_workers: the {had} workers of this run kept up and were not timed, so what a batch costs is unknown; "
            "capture with `ddprof run`, which times them"
        )
    if (workers, prefetch) == (had, now.prefetch()):
        return ()
    return (Change("loader_workers", (), (workers, prefetch, float(had), float(now.cores or 0))),)


def _precision(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    speedups = {"bf16": HALF_PRECISION_SPEEDUP, "fp16": HALF_PRECISION_SPEEDUP, "tf32": TF32_SPEEDUP}
    if setting.value not in speedups:
        raise UsageError(f"precision={setting.value}: one of {', '.join(speedups)}")
    if not measures.fp32_gemm_us.any():
        raise UsageError("precision: no matrix product on fp32 operands in the traces (shapes recorded?)")
    return (Change("scale_kernels", (), (1 / speedups[setting.value],), "fp32_gemm"),)


def _optimizer(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    if not measures.optimizer_kernels.any():
        raise UsageError("optimizer: no optimizer range with kernels in the traces")
    return (Change("scale_kernels", (), (FUSED_DEVICE_SHARE, FUSED_HOST_SHARE), "optimizer"),)


def _compression(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    if setting.value not in ("fp16", "bf16"):
        raise UsageError(f"compression={setting.value}: fp16 or bf16")
    if gradient_traffic(measures) is None:
        raise UsageError("compression: no all-reduce of gradients between data-parallel ranks in this run")
    return (Change("scale_volume", (), (0.5, execution_of(measures.job).limits.packing_ns_per_mib)),)


def _schedule(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
    pipeline = measures.job.pipeline
    if pipeline is None:
        raise UsageError(f"{setting.key}: no pipeline stages found in this run")
    value = number(setting.key, setting.value, least=1, most=65536)
    if setting.key == "microbatches":
        return (Change("pipeline_schedule", (), (value, float(pipeline.interleave))),)
    return (Change("pipeline_schedule", (), (float(pipeline.microbatches), value)),)


def _gathers(kind: str) -> Maker:
    def make(setting: Setting, measures: Measures, now: Present) -> tuple[Change, ...]:
        if not any(t.op == "all_gather" for t in measures.comm.traffic):
            raise UsageError(f"{setting.key}: no all-gather of parameters in this run")
        return (Change(kind),)

    return make


KNOBS: tuple[Knob, ...] = (
    Knob(
        "bandwidth", "Network faster", "every transfer takes 1/n of its time; waiting for late ranks stays",
        "N (times faster)", _faster("scale_transfer", inverse=True), is_factor=True,
        lacks=lambda m: "" if m.comm.traffic else "no communication in the recorded steps", says=present.exposed,
    ),
    Knob(
        "compute", "Kernels faster", "every compute kernel takes 1/n of its time", "N (times faster)[@RANKS]",
        _faster("scale_compute"), most=4.0, for_ranks=True, is_factor=True,
        says=present.per_step(lambda m: m.cause_us("compute"), "compute"),
    ),
    Knob(
        "host", "Host faster", "the host issues work n times as fast where it is free to run",
        "N (times faster)[@RANKS]", _faster("scale_host"), most=4.0, for_ranks=True, is_factor=True,
    ),
    Knob(
        "loader", "Batches always ready", "every batch lies in the prefetch queue when it is asked for", "ready",
        _plain("instant_loader"), is_switch=True, for_ranks=True, mends=(INPUT_STARVED, INPUT_STRAGGLER),
        lacks=present.has_spans("dataloader", "time in a DataLoader"),
        says=present.span_time("dataloader", "in the loader"),
    ),
    Knob(
        "balance", "No straggler", "in every step each rank computes as long as its peers do on average", "on",
        _plain("balance_compute"), is_switch=True, mends=(STRAGGLER_IMBALANCE,),
        lacks=present.has_peers,
    ),
    Knob(
        "sync", "No blocking calls", ".item() and other blocking calls outside loading and saving return at once",
        "off", _plain("no_sync"), is_switch=True, for_ranks=True, mends=(HOST_SYNC,),
        lacks=present.has_spans("host_sync", "blocking call"),
        says=present.span_time("host_sync", "in blocking calls"),
    ),
    Knob(
        "graphs", "Launched as one graph", "5 % of the host time is left and kernels follow without gaps", "on",
        _plain("graph_launch"), is_switch=True, for_ranks=True, mends=(HOST_LAUNCH_BOUND,),
        lacks=lambda m: "" if m.kernels_per_step.any() else "no kernel is launched in the recorded steps",
    ),
    Knob(
        "copies", "Copies beside compute", "pageable host-device copies do not block", "hidden",
        _plain("hide_copies"), is_switch=True, mends=(INPUT_PAGEABLE_COPY,),
        lacks=lambda m: "" if m.pageable_us.any() else "no exposed copy through pageable memory in the recorded steps",
        says=present.per_step(lambda m: m.pageable_us, "exposed pageable copies"),
    ),
    Knob(
        "late", "Ranks on time", "no rank waits for these ranks", "off", _plain("on_time"), is_switch=True,
        for_ranks=True, needs_ranks=True, mends=(STRAGGLER_UNEXPLAINED,),
    ),
    Knob(
        "device", "Ranks replaced", "device, host and loader of these ranks equal their typical peer's", "replaced",
        _replace, is_switch=True, for_ranks=True, needs_ranks=True, mends=(STRAGGLER_COMPUTE, STRAGGLER_HOST),
    ),
    Knob(
        "stages", "Stages balanced", "layers are moved until every pipeline stage has the same work", "balanced",
        _plain("balance_stages"), is_switch=True, mends=(PIPELINE_IMBALANCE,),
        lacks=lambda m: "" if m.job.pipeline else "no pipeline stages found in this run", says=present.stages,
    ),
    Knob(
        "gc", "No collections", "Python garbage collection takes no time", "off", _plain("remove_host", "gc"),
        is_switch=True, for_ranks=True, mends=(HOST_GC,),
        lacks=present.has_spans("gc", "garbage collection"), says=present.span_time("gc", "in collections"),
    ),
    Knob(
        "checkpoint", "No saving", "saving, logging and evaluation take no time", "off",
        _plain("remove_host", "checkpoint"), is_switch=True, for_ranks=True, mends=(HOST_CHECKPOINT,),
        lacks=present.has_spans("checkpoint", "saving, logging or evaluation"),
        says=present.span_time("checkpoint", "saving, logging and evaluating"),
    ),
    Knob(
        "allocator", "No allocation", "no memory is requested from the driver inside a step", "off",
        _plain("remove_host", "allocator"), is_switch=True, for_ranks=True, mends=(HOST_ALLOCATOR,),
        lacks=present.has_spans("allocator", "allocation by the driver"),
        says=present.span_time("allocator", "in allocations"),
    ),
    Knob(
        "bucket_cap_mb", "DDP buckets", "full buckets are reduced one by one, at the cost the run's messages had",
        "N (MiB)", _buckets,
        says=lambda m, now: present.or_unknown(now.bucket_cap_mb, " MiB", DEFAULT_BUCKET_MIB),
    ),
    Knob(
        "first_bucket_mb", "First DDP bucket", "as bucket_cap_mb, the other buckets as they are", "N (MiB)",
        _first_bucket,
        says=present.first_bucket,
    ),
    Knob(
        "overlap", "Gradients reduced as they come", "buckets of 25 MiB, or a quarter of the gradients if that is less",
        "on", _overlap, is_switch=True,
    ),
    Knob(
        "num_workers", "Loader workers", "workers make batches in turn, each at the cost it had in the run",
        "N (per rank)", _workers,
        says=lambda m, now: present.or_unknown(now.num_workers),
    ),
    Knob("prefetch_factor", "Prefetch", "each worker holds n batches at most", "N (per worker)", _prefetch,
         says=lambda m, now: present.or_unknown(now.prefetch_factor, "", DEFAULT_PREFETCH)),
    Knob(
        "precision", "Matrix products in 16 bit",
        f"fp32 products run {HALF_PRECISION_SPEEDUP:g}x as fast (TF32: {TF32_SPEEDUP:g}x)",
        "bf16, fp16 or tf32", _precision, choices=("bf16", "fp16", "tf32"), mends=(COMPUTE_PRECISION,),
        says=present.per_step(lambda m: m.fp32_gemm_us, "in fp32 products"),
    ),
    Knob(
        "optimizer", "Fused optimizer", "one pass over the parameters: 30 % of the device time, 5 % of the host's",
        "fused", _optimizer, is_switch=True, mends=(COMPUTE_UNFUSED_OPTIMIZER,),
        says=present.per_step(lambda m: m.optimizer_us, "on the device"),
    ),
    Knob(
        "compression", "Gradients in 16 bit", "half the bytes; casting costs its memory traffic", "fp16 or bf16",
        _compression, choices=("bf16", "fp16"),
    ),
    Knob(
        "microbatches", "Microbatches", "the same batch in n pieces; bubble (stages - 1) / (n x chunks)",
        "N", _schedule,
        says=present.microbatches,
    ),
    Knob(
        "interleave", "Chunks per stage", "the bubble is divided by n; the additional messages are hidden", "N",
        _schedule,
        says=present.chunks,
    ),
    Knob(
        "reshard_after_forward", "Parameters stay gathered", "the all-gathers of the backward pass are not made",
        "False", _gathers("keep_parameters"), is_switch=True,
    ),
    Knob(
        "prefetch", "Parameters gathered ahead", "each all-gather runs beside the compute of the unit before", "on",
        _gathers("prefetch_gathers"), is_switch=True,
    ),
)  # fmt: skip
BY_KEY = {knob.key: knob for knob in KNOBS}


def parse_setting(text: str) -> Setting:
    """`KEY=VALUE[@RANK,RANK]`, by its name in `ddprof run --set` too. Raises UsageError, which names the known keys."""
    key, sign, rest = ASKED_AS.get(text, text).partition("=")
    if not sign or not rest:
        raise UsageError(f"{text}: want KEY=VALUE, for example num_workers=4")
    if key not in BY_KEY:
        hint = meant(key, BY_KEY) or f"; known: {', '.join(BY_KEY)}"
        raise UsageError(f"{key}: unknown setting{hint}")
    value, _, ranks = rest.partition("@")
    try:
        chosen = tuple(int(r) for r in ranks.split(",") if r)
    except ValueError:
        raise UsageError(f"{text}: ranks are written {key}={value}@0,3") from None
    return Setting(key, value, chosen)

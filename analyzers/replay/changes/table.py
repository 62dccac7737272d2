"""Table of all kinds of change: words, mechanism in the replay, and ledger price.

A new kind is one row here and a function in the file of its mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ddprof.analyzers.job.device_idle import idle_from_calls_us
from ddprof.analyzers.job.host_costs import anomaly_held_us, anomaly_us, held_by_hooks_us, held_in_meetings_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes import booked
from ddprof.analyzers.replay.changes.booked import Booked
from ddprof.analyzers.replay.changes.communication.ddp_buckets import gradient_curve
from ddprof.analyzers.replay.changes.communication.retiming import (
    Retimed,
    drop_meetings,
    drop_needless,
    fills_buckets,
    merge_buckets,
    rebucket,
    scaled_volume,
)
from ddprof.analyzers.replay.changes.communication.sharded_units import resharded
from ddprof.analyzers.replay.changes.communication.transfers import overlap, scale_transfer, speed_groups, speed_links
from ddprof.analyzers.replay.changes.host_spans import (
    async_launch,
    instant_loader,
    no_anomaly,
    no_hook,
    no_script,
    no_stalls,
    no_sync,
    on_time,
    remove_host,
    scale_part,
)
from ddprof.analyzers.replay.changes.loader import loader_workers
from ddprof.analyzers.replay.changes.pipeline_schedule import pipeline_schedule
from ddprof.analyzers.replay.changes.work import PINNED_SHARE as PINNED
from ddprof.analyzers.replay.changes.work import (
    balance_compute,
    balance_stages,
    graph_launch,
    hide_copies,
    keep_activations,
    level_compute,
    scale_compute,
    scale_host,
    scale_kernels,
)
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.causes import HOST_CAUSES
from ddprof.errors import DdprofError
from ddprof.findings import Change

ToScenario = Callable[[Change, Graph, Measures], Scenario]
ToTransfers = Callable[[Change, Graph, Measures, tuple[Change, ...]], dict[int, Retimed]]
ToStep = Callable[[Change, float, Measures], float]


class ChangeKind(Struct, frozen=True):
    """One kind of change; exactly one of `scenario`, `retiming` and `rate` says how it is applied.

    `scenario`: differences from the recorded run. `retiming`: new transfers by rank position, computed after the
    scenarios of all changes, in the order of the table. `rate`: the step (us), given the replay's step for everything
    else.
    """

    name: str
    words: str
    scenario: ToScenario | None = None
    retiming: ToTransfers | None = None
    rate: ToStep | None = None
    implies: tuple[str, ...] = ()  # kinds that hold as well, for all ranks
    levels_work: bool = False  # brings the work of its ranks to what it takes their peers, or to the mean
    ledger: Booked | None = None  # None where the gain is no matter of what is booked: formulas, rates
    # Relative, of the gain: what the change itself leaves uncertain, beside the replay. Judged, not measured; the share
    # of verified predictions inside their ranges is (docs/accuracy.md).
    doubt: float = 0.1


_ALL_EXPOSED = Booked(booked.nothing, most=booked.all_exposed(booked.SHARDED))  # the ledger knows a bound alone
_ALL_COMMUNICATION = Booked(booked.nothing, most=booked.all_communication)  # likewise
_ROWS = (
    # Work of the ranks.
    ChangeKind("scale_compute", "compute runs `values` times faster", scale_compute, levels_work=True,
               ledger=Booked(levels=("compute",))),
    ChangeKind("balance_compute", "peers compute equally long in every step", balance_compute, levels_work=True,
               ledger=Booked(booked.of_cause("comm_wait")), doubt=0.2),
    ChangeKind("level_compute", "ranks compute no longer than their peers", level_compute, levels_work=True,
               ledger=Booked(levels=("compute",))),
    ChangeKind("balance_stages", "every pipeline stage has the same work", balance_stages,
               ledger=Booked(booked.even_stages, most=booked.even_stages_at_most, is_held_by_untraced=True)),
    ChangeKind("scale_host", "the host runs `values` times faster whenever it is free to", scale_host,
               ledger=Booked(levels=HOST_CAUSES)),
    # What the host spends its time on.
    ChangeKind("remove_host", "no host time in spans of the cause `target`", remove_host,
               ledger=Booked(booked.booked_to_target, is_of_target=True)),
    ChangeKind("instant_loader", "every batch is ready when it is asked for", instant_loader,
               ledger=Booked(booked.of_cause("dataloader"), ("dataloader",), levels=("dataloader",))),
    ChangeKind("no_sync", "synchronising calls return at once", no_sync,
               ledger=Booked(booked.of_cause("host_sync"), ("host_sync",), most=booked.of_rank(idle_from_calls_us))),
    ChangeKind("async_launch", "launch calls return before their kernels end", async_launch,
               ledger=Booked(booked.of_cause("host_sync"), ("host_sync",), most=booked.idle_or_exposed)),
    ChangeKind("no_stalls", "calls in which a host stalled take their usual time", no_stalls,
               ledger=Booked(booked.starved(lambda measures: measures.stalled_us)), doubt=0.25),
    ChangeKind("no_script", "the script runs `values[0]` of its Python between the phases", no_script,
               ledger=Booked(booked.less_script), doubt=0.25),
    ChangeKind("no_hook", "communication hooks only start their communication", no_hook,
               ledger=Booked(booked.of_rank(held_by_hooks_us)), doubt=0.25),
    ChangeKind("no_anomaly", "autograd's anomaly mode is off", no_anomaly,
               ledger=Booked(booked.of_rank(anomaly_held_us), most=booked.of_rank(anomaly_us)), doubt=0.15),
    ChangeKind("no_compiling", "what is compiled was compiled before: `scale_part` that leaves nothing", scale_part,
               ledger=Booked(booked.less_of_part), doubt=0.15),
    ChangeKind("scale_part", "the part `target` of the host's time takes `values[0]` of it", scale_part,
               ledger=Booked(booked.less_of_part), doubt=0.25),
    ChangeKind("on_time", "no rank waits for these ranks", on_time, ledger=Booked(levels=()), doubt=0.3),
    # Operations of the device.
    ChangeKind("graph_launch", "the step is launched as one graph", graph_launch,
               ledger=Booked(booked.starved(lambda measures: measures.unrecorded_launching_us)), doubt=0.25),
    ChangeKind("scale_kernels", "kernels of `target` take `values[0]` times as long", scale_kernels,
               ledger=Booked(booked.faster_kernels)),
    ChangeKind("keep_activations", "`values[0]` of what is computed again in backward is kept", keep_activations,
               doubt=0.15),
    ChangeKind("hide_copies", "`values[0]` of pageable copies is left, or pinned ones' time", hide_copies,
               ledger=Booked(booked.copies(PINNED), ("memcpy",), most=booked.copies(0.0)), doubt=0.2),
    # Communication.
    ChangeKind("scale_transfer", "transfers of the role `target` take `values[0]` times as long", scale_transfer,
               ledger=Booked(booked.faster_transfers, most=booked.exposed_first), doubt=0.25),
    ChangeKind("speed_groups", "transfers of the groups `values[1:]` take `values[0]` times as long", speed_groups,
               ledger=_ALL_COMMUNICATION, doubt=0.2),
    ChangeKind("speed_links", "messages of the pairs of `ranks` take `values[0]` times as long", speed_links,
               ledger=_ALL_COMMUNICATION, doubt=0.2),
    ChangeKind("drop_meetings", "no barriers and no collectives of Python objects in the step", drop_meetings,
               ledger=Booked(booked.of_rank(held_in_meetings_us))),
    ChangeKind("drop_needless", "no collectives of the kind `target` (analyzers/job/redundant)", drop_needless,
               ledger=Booked(booked.needless_transfer, most=booked.needless_held), doubt=0.2),
    ChangeKind("merge_buckets", "small collectives share buckets of `values[0]` bytes, DDP's first one `values[1]`",
               merge_buckets,
               ledger=Booked(booked.fewer_messages), doubt=0.2),
    ChangeKind("overlap", "collectives start with the first gradient; `values[0]` bytes stay exposed", overlap,
               ledger=Booked(booked.overlapped), doubt=0.25),
    ChangeKind("merge_units", "`values[0]` units of sharded parameters are one", retiming=resharded,
               ledger=_ALL_EXPOSED, doubt=0.25),
    ChangeKind("prefetch_gathers", "each all-gather starts one unit earlier", retiming=resharded,
               ledger=_ALL_EXPOSED, doubt=0.25),
    ChangeKind("keep_parameters", "parameters stay gathered after the forward pass", retiming=resharded,
               ledger=_ALL_EXPOSED, doubt=0.25),
    ChangeKind("scale_volume", "gradients move `values[0]` of their bytes", retiming=scaled_volume, doubt=0.25),
    # Last of the retimings: buckets are scheduled with the volume and the speed that the others give.
    ChangeKind("rebucket", "DDP's buckets hold `values` = (cap, first) bytes", retiming=rebucket, doubt=0.25),
    # Rates.
    ChangeKind("loader_workers", "`values` = (workers, prefetch factor, workers of the run, cores per host or 0)",
               rate=loader_workers, implies=("instant_loader",), doubt=0.15),
    ChangeKind("pipeline_schedule", "`values` = (microbatches, chunks per stage)", rate=pipeline_schedule, doubt=0.2),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _ROWS}
KERNEL_DOUBT = {"fp32_gemm": 0.5, "optimizer": 0.3}  # of scale_kernels, by its target: it depends on shapes
GUESSED_DOUBT = 0.4  # of DDP's buckets where the run's messages have one size: their latency is assumed


def doubt_of(changes: Sequence[Change], measures: Measures) -> float:
    """The largest relative doubt of some changes."""
    return max((_doubt(change, measures) for change in changes), default=0.0)


def _doubt(change: Change, measures: Measures) -> float:
    doubt = kind_of(change).doubt
    if fills_buckets(change):
        curve = gradient_curve(measures)
        return GUESSED_DOUBT if curve is not None and curve.is_prior else KINDS["rebucket"].doubt
    return KERNEL_DOUBT.get(change.target, doubt) if change.kind == "scale_kernels" else doubt


def kind_of(change: Change) -> ChangeKind:
    """The row of a change; raises DdprofError for a kind that is not in the table."""
    if change.kind not in KINDS:
        raise DdprofError(f"the replay knows no change of kind {change.kind!r}; it knows {', '.join(sorted(KINDS))}")
    return KINDS[change.kind]

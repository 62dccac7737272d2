"""Every kind of change that the replay knows: what a `Change` of it says, in words, and how the replay applies it.

A new kind is a row here and a function in the file of its mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.communication.fewer_calls import drop_meetings, drop_needless, merge_buckets
from ddprof.analyzers.replay.changes.communication.overlap import overlap
from ddprof.analyzers.replay.changes.communication.retiming import (
    Retimed,
    rebucket,
    scaled_volume,
)
from ddprof.analyzers.replay.changes.communication.sharded_units import resharded
from ddprof.analyzers.replay.changes.communication.transfers import scale_transfer, speed_groups, speed_links
from ddprof.analyzers.replay.changes.host_spans import (
    instant_loader,
    no_hook,
    no_script,
    no_stalls,
    no_sync,
    on_time,
    remove_host,
)
from ddprof.analyzers.replay.changes.kernels import graph_launch, hide_copies, keep_activations, scale_kernels
from ddprof.analyzers.replay.changes.loader.workers import loader_workers
from ddprof.analyzers.replay.changes.pipeline_schedule import pipeline_schedule
from ddprof.analyzers.replay.changes.work import (
    balance_compute,
    balance_stages,
    level_compute,
    scale_compute,
    scale_host,
)
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.errors import DdprofError
from ddprof.findings import Change

ToScenario = Callable[[Change, Graph, Measures], Scenario]
ToTransfers = Callable[[Change, Graph, Measures, tuple[Change, ...]], dict[int, Retimed]]
ToStep = Callable[[Change, float, Measures], float]


@dataclass(frozen=True)
class ChangeKind:
    """One kind of change; exactly one of `scenario`, `retiming` and `rate` says how it is applied.

    `scenario`: what is different in the recorded run. `retiming`: new transfers (by position of the rank), worked out
    with all changes of the replay at hand, after their scenarios, in the order of the table. `rate`: the step (us) in
    place of the one that the replay predicts for everything else.
    """

    name: str
    words: str
    scenario: ToScenario | None = None
    retiming: ToTransfers | None = None
    rate: ToStep | None = None
    implies: tuple[str, ...] = ()  # kinds that hold as well, for all ranks
    levels_work: bool = False  # brings the work of its ranks to what it takes their peers, or to the mean


_ROWS = (
    # Work of the ranks.
    ChangeKind("scale_compute", "compute runs `values` times faster", scale_compute, levels_work=True),
    ChangeKind("balance_compute", "peers compute equally long in every step", balance_compute, levels_work=True),
    ChangeKind("level_compute", "ranks compute no longer than their peers", level_compute, levels_work=True),
    ChangeKind("balance_stages", "every pipeline stage has the same work", balance_stages),
    ChangeKind("scale_host", "the host runs `values` times faster whenever it is free to", scale_host),
    # What the host spends its time on.
    ChangeKind("remove_host", "no host time in spans of the cause `target`", remove_host),
    ChangeKind("instant_loader", "every batch is ready when it is asked for", instant_loader),
    ChangeKind("no_sync", "synchronising calls return at once", no_sync),
    ChangeKind("no_stalls", "calls in which a host stalled take their usual time", no_stalls),
    ChangeKind("no_script", "the script runs `values[0]` of its Python between the phases", no_script),
    ChangeKind("no_hook", "communication hooks only start their communication", no_hook),
    ChangeKind("on_time", "nobody waits for these ranks", on_time),
    # Operations of the device.
    ChangeKind("graph_launch", "the step is launched as one graph", graph_launch),
    ChangeKind("scale_kernels", "kernels of `target` take `values[0]` times as long", scale_kernels),
    ChangeKind("keep_activations", "`values[0]` of what is computed again in backward is kept", keep_activations),
    ChangeKind("hide_copies", "copies come from pinned memory", hide_copies),
    # Communication.
    ChangeKind("scale_transfer", "transfers of the role `target` take `values[0]` times as long", scale_transfer),
    ChangeKind("speed_groups", "transfers of the groups `values[1:]` take `values[0]` times as long", speed_groups),
    ChangeKind("speed_links", "messages of the pairs of `ranks` take `values[0]` times as long", speed_links),
    ChangeKind("drop_meetings", "no barriers and no collectives of Python objects in the step", drop_meetings),
    ChangeKind("drop_needless", "no collectives of the kind `target` (analyzers/job/needless)", drop_needless),
    ChangeKind("merge_buckets", "small collectives share buckets of `values[0]` bytes", merge_buckets),
    ChangeKind("overlap", "collectives start with the first gradient; `values[0]` bytes stay exposed", overlap),
    ChangeKind("merge_units", "`values[0]` units of sharded parameters are one", retiming=resharded),
    ChangeKind("prefetch_gathers", "each all-gather starts one unit earlier", retiming=resharded),
    ChangeKind("keep_parameters", "parameters stay gathered after the forward pass", retiming=resharded),
    ChangeKind("scale_volume", "gradients move `values[0]` of their bytes", retiming=scaled_volume),
    # Last of the retimings: buckets are scheduled with the volume and the speed that the others give.
    ChangeKind("rebucket", "DDP's buckets hold `values` = (cap, first) bytes", retiming=rebucket),
    # Rates.
    ChangeKind(
        "loader_workers",
        "`values` = (workers, prefetch factor, workers of the run, cores per host or 0)",
        rate=loader_workers,
        implies=("instant_loader",),
    ),
    ChangeKind("pipeline_schedule", "`values` = (microbatches, chunks per stage)", rate=pipeline_schedule),
)
KINDS = {kind.name: kind for kind in _ROWS}


def kind_of(change: Change) -> ChangeKind:
    """The row of a change; raises DdprofError for a kind that is not in the table."""
    if change.kind not in KINDS:
        raise DdprofError(f"the replay knows no change of kind {change.kind!r}; it knows {', '.join(sorted(KINDS))}")
    return KINDS[change.kind]

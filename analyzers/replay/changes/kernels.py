"""Changes of device operations: faster kernels, one launch for the whole step, non-blocking copies."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.memory import recomputed, recomputing
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.job.copies import pageable_copies
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.ranks import chosen, scaled
from ddprof.analyzers.replay.changes.work import scale_host
from ddprof.analyzers.replay.host_time import Scaled
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.findings import Change
from ddprof.tables import Array

PINNED_SHARE = 0.22  # of a pageable copy's time: ~5 GB/s through the driver's staging buffer against 20 to 25 on PCIe 4
GRAPH_LAUNCH_SHARE = 0.05  # host time left of a step when it is launched as one CUDA graph


def graph_launch(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Launch the step as a whole: hardly any host time between kernels, and no gap between them."""
    scaled = scale_host(Change("scale_host", change.ranks, (1.0 / GRAPH_LAUNCH_SHARE,)), graph, measures)
    queue = {rank.position: np.zeros_like(rank.ops.queue_lag_ns) for rank, _ in chosen(change, graph, measures)}
    return Scenario(host_scale=scaled.host_scale, queue_ns=queue)


def scale_kernels(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Marked kernels take value times as long. `target`: "fp32_gemm", or "optimizer", of whose kernels so many are gone
    that the gaps between them shrink alike.
    """
    dur, queue, host = dict[int, Array](), dict[int, Array](), dict[int, Scaled]()
    for rank in graph.ranks:
        facts = rank.facts
        if change.target == "fp32_gemm":
            groups = facts.kernel_groups
            names = groups["name"][groups["is_fp32"].astype(bool)]
            marked = np.isin(facts.device_ops["name"][rank.ops.row], names)
        else:
            spans = facts.phase_time(Phase.OPTIMIZER)
            marked = intervals.contains(spans, rank.ops.launch_ns)
            host[rank.position] = ((spans, change.values[1] if len(change.values) > 1 else 1.0),)
        marked &= ~rank.ops.is_comm
        if change.target == "optimizer":
            queue[rank.position] = scaled(rank.ops.queue_lag_ns, marked, change.values[0])
        dur[rank.position] = scaled(rank.ops.dur_ns, marked, change.values[0])
    return Scenario(dur_ns=dur, host_scale=host, queue_ns=queue)


def keep_activations(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Keep a share `values[0]` of the activations recomputed in backward, which launches that much less."""
    dur, queue, host = dict[int, Array](), dict[int, Array](), dict[int, Scaled]()
    left = 1.0 - change.values[0]
    for rank in graph.ranks:
        ops = rank.facts.device_ops
        if not len(ops):
            continue
        again = recomputed(ops, rank.facts.strings)
        marked = again[rank.ops.row] & ~rank.ops.is_comm
        dur[rank.position] = scaled(rank.ops.dur_ns, marked, left)
        queue[rank.position] = scaled(rank.ops.queue_lag_ns, marked, left)
        host[rank.position] = ((intervals.union(*recomputing(ops, again)), left),)
    return Scenario(dur_ns=dur, host_scale=host, queue_ns=queue)


def hide_copies(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Copy through pinned instead of pageable host memory: faster, and without blocking. `values[0]`: the share of
    their time that is left instead, 0 where what is copied stays on the device.
    """
    left = change.values[0] if change.values else PINNED_SHARE
    dur, freed = {}, {}
    for rank in graph.ranks:
        facts = rank.facts
        if not len(facts.device_ops):
            continue
        pageable = pageable_copies(facts)[rank.ops.row]
        dur[rank.position] = scaled(rank.ops.dur_ns, pageable, left)
        launches = rank.ops.launch_ns[pageable]
        freed[rank.position] = frozenset(np.flatnonzero(np.isin(rank.anchors.start_ns, launches)).tolist())
    return Scenario(dur_ns=dur, freed=freed)

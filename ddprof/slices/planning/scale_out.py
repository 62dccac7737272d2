"""A data-parallel run at other world sizes: each rank keeps its batch; communication and the effect of jitter grow.

The ring's share grows as (n - 1) / n, its latency with the number of members, its rate falls where the group leaves the
node; the slowest of N ranks is later by sigma sqrt(2 ln N) (normal steps), of which the run's own N is in its step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.replay.changes.communication.ddp_buckets import gradient_curve, gradient_traffic
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.summarise import training_of
from ddprof.analyzers.trust.believed import of_step
from ddprof.errors import NoUsableInput
from ddprof.findings import Change
from ddprof.report.comparison.compare import scaled_rate
from ddprof.units import format_share

WORLDS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
NEAR_BAND, FAR_BAND = 0.10, 0.25  # of the step; far: the group leaves the node, whose network the run did not use


@dataclass(frozen=True)
class WorldPoint:
    """The step (us) of a world of `world` ranks, with range; efficiency: throughput per rank against the run's own."""

    world: int
    step_us: float
    low_us: float
    high_us: float
    efficiency: float


@dataclass(frozen=True)
class ScalePlan:
    """Data-parallel scaling of a run. `jitter_us`: spread of one rank's own work from step to step."""

    points: tuple[WorldPoint, ...]
    world: int
    step_us: float
    jitter_us: float
    per_node: int
    node_factor: float
    assumptions: tuple[str, ...]


def scale_out(prices: Pricer, worlds: tuple[int, ...], per_node: int, node_factor: float) -> ScalePlan:
    """The plan. `node_factor`: slowdown of the network between nodes against the run's own links (>= 1).

    Raises NoUsableInput where the run has no data-parallel communication to scale.
    """
    measures = prices.measures
    traffic, curve = gradient_traffic(measures), gradient_curve(measures)
    if traffic is None or curve is None:
        raise NoUsableInput("no all-reduce of gradients between data-parallel ranks in this run: nothing to scale")
    now, step_us = traffic.group_size, prices.step_us(())
    size = max(traffic.mean_bytes, 1.0)
    latency = min(curve.line.alpha_ns / curve.time_ns(size), 1.0)
    jitter_us = _jitter_us(prices)
    points = []
    for world in sorted({*worlds, now}):
        leaves = world > per_node and not (traffic.crosses_hosts or now > per_node)
        slower = node_factor if leaves else 1.0
        moved = ((world - 1) / world) / ((now - 1) / now) * slower
        factor = latency * log(2 * world) / log(2 * now) + (1 - latency) * moved
        late_us = jitter_us * (_expected_maximum(world) - _expected_maximum(now))
        reached = prices.step_us((Change("scale_transfer", (), (factor,), traffic.role),)) if world != now else step_us
        reached = max(reached + late_us, 1e-9)
        low_us, high_us = of_step(prices, (), reached, (FAR_BAND if leaves else NEAR_BAND) * abs(reached - step_us))
        points.append(WorldPoint(world, reached, low_us, high_us, step_us / reached))
    return ScalePlan(
        points=tuple(points),
        world=now,
        step_us=step_us,
        jitter_us=jitter_us,
        per_node=per_node,
        node_factor=node_factor,
        assumptions=(
            "every rank keeps its batch (weak scaling) and its loader keeps up"
            + _rate_words(measures.job, max(worlds) / now),
            f"a call's latency grows with log(ranks); it is {format_share(latency)} of a typical call here",
            f"links between nodes are {node_factor:g} times slower than this run's; {per_node} ranks per node",
            f"a rank's own work varies by {jitter_us / 1e3:.2g} ms from step to step, independently of the others",
        ),
    )


def _rate_words(job: JobFacts, ratio: float) -> str:
    """The learning rate for a batch larger by `ratio`, in words; "" where the run's is not known."""
    training = training_of(job)
    if not training.learning_rate:
        return ""
    usual, rule = scaled_rate(training.learning_rate, ratio, training.optimizer)
    return (
        f"; of {ratio:g} times the samples per step the learning rate {training.learning_rate:g} is {usual:.3g} {rule}"
    )


def _expected_maximum(count: int) -> float:
    """Expected maximum of `count` standard normals, to leading order."""
    return sqrt(2 * log(count)) if count > 1 else 0.0


def _jitter_us(prices: Pricer) -> float:
    """Standard deviation over steps of a rank's compute beyond the ranks' common variation; median over ranks."""
    slowdown = prices.measures.work
    work_us = slowdown.per_step * (slowdown.time_us / np.maximum(np.nanmean(slowdown.per_step, axis=1), 1e-9))[:, None]
    if work_us.shape[1] < 3 or not np.isfinite(work_us).all():
        return 0.0
    return float(np.median(work_us.std(axis=1, ddof=1)))

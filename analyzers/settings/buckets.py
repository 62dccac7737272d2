"""DDP's bucket_cap_mb and first bucket: one replay per size, on the run's own gradient times and message costs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ddprof.analyzers.job.traffic.gradients import DEFAULT_BUCKET_MIB
from ddprof.analyzers.replay.changes.communication.ddp_buckets import (
    Reduction,
    gradient_curve,
    gradient_traffic,
    reductions,
)
from ddprof.analyzers.replay.changes.table import doubt_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.curve import Point, SettingCurve
from ddprof.analyzers.settings.present import Present, first_bucket_mb
from ddprof.analyzers.trust.believed import of_step
from ddprof.errors import NoUsableInput
from ddprof.findings import Change
from ddprof.units import MIB

CAPS_MB = (0.1, 0.25, 0.5, 1, 2, 4, 6, 8, 10, 15, 20, 25, 35, 50, 75, 100, 150, 200, 300, 400, 600, 800)
FIRST_MB = (0.1, 0.25, 0.5, 1, 2, 5, 10, 25)


class BucketPlan(Struct, frozen=True):
    """Costs of the run's gradients in buckets of other sizes.

    `latency_us`, `gb_per_s`: the line fitted to the run's all-reduces; `measured_mb`: the sizes it holds.
    """

    caps: SettingCurve
    firsts: SettingCurve
    step_us: float
    advised_mb: float
    advised_us: float
    low_us: float
    high_us: float
    gradient_mb: float
    recorded_buckets: float  # per backward pass
    latency_us: float
    gb_per_s: float
    measured_mb: tuple[float, float]
    is_guess: bool
    source: str


def plan_buckets(prices: Pricer, now: Present) -> BucketPlan:
    """The plan. Raises NoUsableInput where no gradients are reduced between data-parallel ranks."""
    measures = prices.measures
    traffic, cost = gradient_traffic(measures), gradient_curve(measures)
    passes = reductions(measures, prices.graph)
    if traffic is None or cost is None or not passes:
        unsized = any(t.op == "all_reduce" and not t.total_bytes for t in measures.comm.traffic)
        why = "the traces do not say how large messages are" if unsized else "no all-reduce of gradients in this run"
        raise NoUsableInput(f"no buckets to plan: {why}")
    gradient_bytes = max(float(p.sizes_bytes.sum()) for p in passes)
    step_us = prices.step_us(())

    bias = schedule_bias(prices, now)

    def predicted(cap_mb: float, first_mb: float) -> float:
        return bias * prices.step_us((_rebucket(cap_mb, first_mb),))

    values = sorted({*_useful(CAPS_MB, gradient_bytes / MIB), *([now.bucket_cap_mb] if now.bucket_cap_mb else [])})
    values = [v for v in values if v <= max(gradient_bytes / MIB * 4, DEFAULT_BUCKET_MIB)]
    caps = SettingCurve(
        "bucket_cap_mb", tuple(Point(v, predicted(v, first_bucket_mb(v))) for v in values), now.bucket_cap_mb
    )
    advised = caps.advised((DEFAULT_BUCKET_MIB, *sorted(values, key=lambda v: abs(v - DEFAULT_BUCKET_MIB))))
    firsts = [v for v in FIRST_MB if v <= advised.value]
    first = SettingCurve(
        "first_bucket_mb", tuple(Point(v, predicted(advised.value, v)) for v in firsts), now.first_bucket_mb
    )
    changes = (_rebucket(advised.value, first_bucket_mb(advised.value)),)
    doubt_us = doubt_of(changes, measures) * abs(step_us - advised.step_us)
    low_us, high_us = of_step(prices, changes, advised.step_us, doubt_us)
    return BucketPlan(
        caps=caps,
        firsts=first,
        step_us=step_us,
        advised_mb=advised.value,
        advised_us=advised.step_us,
        low_us=low_us,
        high_us=high_us,
        gradient_mb=gradient_bytes / MIB,
        recorded_buckets=sum(len(p.sizes_bytes) for p in passes) / len(passes),
        latency_us=cost.line.alpha_ns / 1e3,
        gb_per_s=cost.line.bytes_per_ns,
        measured_mb=(float(cost.sizes_bytes[0]) / MIB, float(cost.sizes_bytes[-1]) / MIB),
        is_guess=cost.is_prior,
        source=_source(passes),
    )


def schedule_bias(prices: Pricer, now: Present) -> float:
    """Factor on predictions of other buckets: the measured step over the schedule's step with the run's own buckets, 1
    where those are not known. An error of the schedule in both cancels."""
    own_mb = now.bucket_cap_mb
    if not own_mb:
        return 1.0
    modelled_us = prices.step_us((_rebucket(own_mb, now.first_bucket_mb or first_bucket_mb(own_mb)),))
    return prices.step_us(()) / modelled_us if modelled_us > 0 else 1.0


def _rebucket(cap_mb: float, first_mb: float) -> Change:
    return Change("rebucket", (), (cap_mb * MIB, first_mb * MIB))


def _useful(caps_mb: tuple[float, ...], gradient_mb: float) -> list[float]:
    """Caps up to the first that holds all gradients: larger ones change nothing."""
    below = [v for v in caps_mb if v < gradient_mb]
    above = [v for v in caps_mb if v >= gradient_mb]
    return [*below, *above[:1], DEFAULT_BUCKET_MIB]


def _source(passes: Sequence[Reduction]) -> str:
    if any(p.gradients is not None for p in passes):
        return "the time of every gradient, as captured"
    return "the recorded buckets, gradients made at an even rate between them"

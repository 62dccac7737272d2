"""Bucket sizes and loader workers against the step they would give: the best value, those as good as it, the advice."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB
from ddprof.analyzers.replay.changes.communication.ddp_buckets import (
    Reduction,
    gradient_curve,
    gradient_traffic,
    reductions,
)
from ddprof.analyzers.replay.changes.loader import CPU_BOUND, WORKERS, busy_step_us, cores_bound_us, demand, rank_costs
from ddprof.analyzers.replay.changes.table import doubt_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.present import Present, first_bucket_mb
from ddprof.analyzers.trust.believed import of_step
from ddprof.errors import NoUsableInput
from ddprof.findings import Change
from ddprof.units import MIB

FLAT_SHARE = 0.02  # within this of the best step a value is as good: predictions are no sharper


class Point(Struct, frozen=True):
    """One value of the setting and the predicted step (us)."""

    value: float
    step_us: float


class SettingCurve(Struct, frozen=True):
    """Predicted step over a setting, in order of its values. `now`: the run's own value, where it is known."""

    knob: str
    points: tuple[Point, ...]
    now: float | None = None

    @property
    def best(self) -> Point:
        """The least step; of equal ones the smallest value."""
        return min(self.points, key=lambda p: (p.step_us, p.value))

    @property
    def flat(self) -> tuple[Point, ...]:
        """The values that are as good as the best one, in order."""
        limit = self.best.step_us * (1 + FLAT_SHARE)
        return tuple(point for point in self.points if point.step_us <= limit)

    def advised(self, preferred: Sequence[float]) -> Point:
        """The run's own value where it is as good as the best, else the first preferred one that is, else the best."""
        wanted = preferred if self.now is None else (self.now, *preferred)
        return next((p for value in wanted for p in self.flat if p.value == value), self.best)


# DDP's bucket_cap_mb and first bucket: one replay per size, on the run's own gradient times and message costs.

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


# The data loader's workers and prefetch: W workers deliver a batch every t_batch / W, within the cores available.

PREFETCH = (1, 2, 4, 8)


class LoaderPlan(Struct, frozen=True):
    """Steps with other workers and prefetch. Times are microseconds; `batch_us`: to make one, slowest rank."""

    workers: SettingCurve
    prefetch: SettingCurve
    step_us: float
    advised_workers: int
    advised_us: float
    low_us: float
    high_us: float
    batch_us: float
    ready_us: float  # the step with every batch ready: no setting of the loader gives less
    kind: str | None  # "cpu" | "wait" | "collate" | "mixed"; None where CPU time was not recorded
    cpu_share: float | None
    source: str
    cores: int | None
    cores_us: float  # least step that the cores allow; 0 where that cannot be known
    turn_us: float  # of a batch, what only one worker can do at a time; 0 where nothing shows that


def plan_loader(prices: Pricer, now: Present) -> LoaderPlan:
    """The plan. Raises UsageError or NoUsableInput where a batch's cost cannot be known."""
    had = now.workers()
    costs = [c for c in rank_costs(prices.measures, had) if c is not None]
    if not costs:
        raise NoUsableInput(
            f"the {had} workers of this run kept up and were not timed: what a batch costs is unknown (capture with "
            "`ddprof run`, which times them)"
        )
    slowest = max(costs, key=lambda c: c.mean_ns)

    def changed(workers: int, prefetch: int) -> tuple[Change, ...]:
        if workers == had and (prefetch == now.prefetch() or not workers):
            return ()
        return (Change("loader_workers", (), (float(workers), float(prefetch), float(had), float(now.cores or 0))),)

    def predicted(workers: int, prefetch: int) -> float:
        return prices.told_step_us(changed(workers, prefetch))

    # Workers that wait for storage need no core meanwhile; how much of a batch is waiting must be known to say so.
    waits = slowest.core_share is not None and slowest.core_share < CPU_BOUND
    most = max(now.cores or WORKERS[-1], had) if not waits else WORKERS[-1]
    counts = sorted({*(w for w in WORKERS if w <= most), had})
    curve = SettingCurve("num_workers", tuple(Point(w, predicted(w, now.prefetch())) for w in counts), had)
    ready_us = prices.told_step_us((Change("instant_loader"),))
    cores_us = 0.0 if slowest.kind == "wait" else cores_bound_us(prices.measures, costs, now.cores or 0, ready_us)
    needs = demand(prices.measures, busy_step_us(prices.measures), had, now.cores or 0)
    advised = _advised(curve, had if needs is None else needs.workers)
    deep = SettingCurve(
        "prefetch_factor",
        tuple(Point(f, predicted(int(advised.value), f)) for f in PREFETCH) if advised.value else (),
        now.prefetch_factor,
    )
    step_us = prices.step_us(())
    changes = changed(int(advised.value), now.prefetch())
    doubt_us = doubt_of(changes, prices.measures) * abs(step_us - advised.step_us)
    low_us, high_us = of_step(prices, changes, advised.step_us, doubt_us)
    return LoaderPlan(
        workers=curve,
        prefetch=deep,
        step_us=step_us,
        advised_workers=int(advised.value),
        advised_us=advised.step_us,
        low_us=low_us,
        high_us=high_us,
        batch_us=slowest.mean_ns / 1e3,
        ready_us=ready_us,
        kind=slowest.kind,
        cpu_share=slowest.cpu_share,
        source=slowest.source,
        cores=now.cores,
        cores_us=cores_us,
        turn_us=slowest.turn_ns / 1e3,
    )


def _advised(curve: SettingCurve, wanted: int) -> Point:
    """The run's own count where it is as good as any; else the count that findings advise, or the fewest as good."""
    if curve.now is not None and any(p.value == curve.now for p in curve.flat):
        return next(p for p in curve.flat if p.value == curve.now)
    fewest = curve.flat[0]
    if not fewest.value:
        return fewest
    return next((p for p in curve.points if p.value == wanted), fewest)

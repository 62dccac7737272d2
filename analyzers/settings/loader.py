"""The data loader's workers and prefetch: W workers deliver a batch every t_batch / W, within the cores available."""

from __future__ import annotations

from msgspec import Struct

from ddprof.analyzers.replay.changes.loader.demand import busy_step_us, demand
from ddprof.analyzers.replay.changes.loader.fetch_costs import CPU_BOUND, WORKERS, rank_costs
from ddprof.analyzers.replay.changes.loader.workers import cores_bound_us
from ddprof.analyzers.replay.changes.table import doubt_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.curve import Point, SettingCurve
from ddprof.analyzers.settings.present import Present
from ddprof.analyzers.trust.believed import of_step
from ddprof.errors import NoUsableInput
from ddprof.findings import Change

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

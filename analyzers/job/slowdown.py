"""Slowdown of a rank against its peers: its time for work that they do too, over theirs, per step.

Compute compares the same kernels (same name and shapes) on ranks that run the same program, so that more work is not
mistaken for slow hardware. Host compares the time per step in which the host is free to run (`free_host`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.work import free_host, host_work, issued_ns, step_compute_ns
from ddprof.analyzers.job.model import Pipeline
from ddprof.tables import Array

# Kernels that ran alone are compared with such, kernels beside communication with such, and those between not at all.
ALONE = 0.05  # of a kernel's time beside communication: below it the kernel ran alone
BESIDE = 0.8  # of a kernel's time beside communication: above it the kernel ran beside it
BESIDE_MARK = "beside comm: "
MIN_KERNELS_BOTH_WAYS = 4  # that ran both ways, before their interference means anything
MAX_INTERFERENCE = 0.5  # relative; the same name taking longer by more is doing other work, as a backward pass does
COUNT_TOLERANCE = 0.2  # relative; ranks whose counts of a kernel differ by more do different work with it


@dataclass(frozen=True)
class Slowdown:
    """Time over that of the typical peer for the same work: 1.10 is 10 % longer. NaN where nothing can be compared."""

    factor: Array  # (ranks,), median over steps
    per_step: Array  # (ranks, steps)
    time_us: Array  # (ranks,), comparable time per step
    coverage: Array  # (ranks,), share of the rank's time that could be compared
    more_work: Array  # (ranks,), share of time in excess counts of kernels: work the peers do not have


def peers(count: int, pipeline: Pipeline | None) -> list[list[int]]:
    """Positions that run the same program: the ranks of one pipeline stage, else all."""
    if pipeline is None:
        return [list(range(count))]
    staged = {p for stage in pipeline.stages for p in stage}
    rest = [p for p in range(count) if p not in staged]
    return [sorted(stage) for stage in pipeline.stages] + ([rest] if rest else [])


def compute_slowdown(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Slowdown:
    """Slowdown of compute, by the durations of equal kernels; on CPU ranks by operator time per step."""
    steps = min((len(f.steps) for f in ranks), default=0)
    if not steps:
        return _unknown(len(ranks))
    if any(len(f.host_work) for f in ranks):
        busy = np.array([_host_busy(f)[:steps] for f in ranks], float)
        return _from_times(busy, peers(len(ranks), pipeline))
    factor_steps = np.full((len(ranks), steps), np.nan)
    time_us, coverage, more = np.zeros((3, len(ranks)))
    tables = [_kernel_table(f, steps) for f in ranks]
    for group in peers(len(ranks), pipeline):
        reference = _references(tables, group)
        launches = [_launches(tables[p]) for p in group]
        usual = _usual_launches(launches)
        for p, own in zip(group, launches, strict=True):
            table = tables[p]
            shared = [n for n in table if n in reference]
            if not shared:
                continue
            counts = np.array([table[n][0] for n in shared])
            times = np.array([table[n][1] for n in shared], float)
            expected = counts * np.array([reference[n] for n in shared])[:, None]
            factor_steps[p] = _weighted_median(times, expected)
            time_us[p] = times.sum() / steps / 1e3
            coverage[p] = times.sum() / max(1.0, _compute_ns(ranks[p]))
            more[p] = _more_work(own, usual)
    return Slowdown(_median(factor_steps), factor_steps, time_us, coverage, more)


def _unknown(count: int) -> Slowdown:
    none = np.zeros(count)
    return Slowdown(np.full(count, np.nan), np.full((count, 1), np.nan), none, none, none)


def _kernel_table(facts: RankFacts, steps: int) -> dict[str, tuple[Array, Array]]:
    """Kernel (name and shapes) -> (launches per step, ns per step), each shape (steps,).

    A kernel belongs to the step it was launched in.
    """
    ops = facts.device_ops
    issued = issued_ns(ops)
    step = np.searchsorted(facts.steps["mark_ns"], issued, side="right") - 1
    inside = (step >= 0) & (step < steps) & (issued < facts.steps["mark_end_ns"][np.maximum(step, 0)])
    mine = np.flatnonzero((ops["work"] == Work.COMPUTE) & inside)
    share = _contended(facts, mine)
    pure = (share < ALONE) | (share > BESIDE)
    mine, beside = mine[pure], (share > BESIDE)[pure].astype(np.int64)
    shape = ops["shape"][mine].astype(np.int64)
    named = ops["name"][mine].astype(np.int64) * 2**32 + np.where(shape == NO_STRING, 2**31, shape)
    names, local = np.unique(named * 2 + beside, return_inverse=True)
    key = local * steps + step[mine]
    count = np.bincount(key, minlength=len(names) * steps).reshape(len(names), steps)
    time = np.bincount(key, weights=(ops["end_ns"] - ops["start_ns"])[mine], minlength=len(names) * steps)
    time = time.reshape(len(names), steps)
    return {_kernel_key(facts, int(n)): (count[i], time[i]) for i, n in enumerate(names)}


def _contended(facts: RankFacts, rows: Array) -> Array:
    """Share of each kernel that ran beside communication, which takes SMs and bandwidth from it."""
    start, end = facts.device_ops["start_ns"][rows], facts.device_ops["end_ns"][rows]
    comm = intervals.union(facts.comms["start_ns"], facts.comms["end_ns"])
    share: Array = intervals.overlap(comm, start, end) / np.maximum(end - start, 1)
    return share


def _compute_ns(facts: RankFacts) -> float:
    ops = facts.device_ops
    mine = (
        (ops["work"] == Work.COMPUTE)
        & (ops["start_ns"] >= facts.steps["start_ns"][0])
        & (ops["start_ns"] < facts.steps["end_ns"][-1])
    )
    return float((ops["end_ns"] - ops["start_ns"])[mine].sum())


def _kernel_key(facts: RankFacts, code: int) -> str:
    named, contended = divmod(code, 2)
    name, shape = divmod(named, 2**32)
    return (BESIDE_MARK if contended else "") + facts.strings[name] + (facts.strings[shape] if shape < 2**31 else "")


def _weighted_median(times: Array, expected: Array) -> Array:
    """Per step the median over kernels of time / expected, weighted by expected time; shape (steps,).

    Robust to odd kernels.
    """
    result = np.full(times.shape[1], np.nan)
    for step in range(times.shape[1]):
        usable = expected[:, step] > 0
        if not usable.any():
            continue
        weight = expected[usable, step]
        ratio = times[usable, step] / weight
        order = np.argsort(ratio, kind="stable")
        reach = np.cumsum(weight[order])
        result[step] = ratio[order][np.searchsorted(reach, reach[-1] / 2)]
    return result


def _references(tables: Sequence[dict[str, tuple[Array, Array]]], group: Sequence[int]) -> dict[str, float]:
    """Per kernel on most ranks: the typical (lower median) mean duration.

    Most: kernels that only the late ranks ran alone, their peers already waiting beside them, compare late with late.
    """
    durations: dict[str, list[float]] = defaultdict(list)
    for p in group:
        for name, (count, time) in tables[p].items():
            total = float(count.sum())
            if total:
                durations[name].append(float(time.sum()) / total)
    return {n: averages.typical(values) for n, values in durations.items() if len(values) > max(1, len(group) // 2)}


def _launches(table: dict[str, tuple[Array, Array]]) -> dict[str, tuple[float, float]]:
    """Kernel -> (launches, ns) over all steps, those beside communication included."""
    found: dict[str, tuple[float, float]] = {}
    for name, (count, time) in table.items():
        plain = name.removeprefix(BESIDE_MARK)
        launches, spent = found.get(plain, (0.0, 0.0))
        found[plain] = (launches + float(count.sum()), spent + float(time.sum()))
    return found


def _usual_launches(ranks: Sequence[dict[str, tuple[float, float]]]) -> dict[str, float]:
    """Per kernel the median over ranks of its launches; ranks without it count as 0."""
    counts: dict[str, list[float]] = defaultdict(list)
    for launches in ranks:
        for name, (count, _) in launches.items():
            counts[name].append(count)
    return {name: float(np.median(seen + [0.0] * (len(ranks) - len(seen)))) for name, seen in counts.items()}


def _more_work(launches: dict[str, tuple[float, float]], usual: dict[str, float]) -> float:
    """Share of a rank's time in launches its peers lack."""
    total = sum(spent for _, spent in launches.values())
    excess = sum(
        spent * (count - usual[name]) / count
        for name, (count, spent) in launches.items()
        if count > usual[name] * (1 + COUNT_TOLERANCE)
    )
    return excess / total if total else 0.0


def _host_busy(facts: RankFacts) -> Array:
    return intervals.overlap(host_work(facts), facts.steps["start_ns"], facts.steps["end_ns"])


def _from_times(times: Array, groups: Sequence[Sequence[int]]) -> Slowdown:
    """Slowdown from ns per rank and step, shape (ranks, steps), compared within each group."""
    per_step = np.full(times.shape, np.nan)
    for group in groups:
        rows = np.array(group)
        if len(rows) < 2:
            continue
        reference = averages.typical_row(times[rows])
        with np.errstate(invalid="ignore", divide="ignore"):
            per_step[rows] = np.where(reference > 0, times[rows] / reference, np.nan)
    ones = np.isfinite(per_step).any(axis=1).astype(float)
    return Slowdown(_median(per_step), per_step, times.mean(axis=1) / 1e3, ones, np.zeros(len(times)))


def _median(per_step: Array) -> Array:
    result = np.full(len(per_step), np.nan)
    usable = np.isfinite(per_step).any(axis=1)
    if usable.any():
        result[usable] = np.nanmedian(per_step[usable], axis=1)
    return result


def work_slowdown(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Slowdown:
    """All compute of a step, whatever its shapes, against the typical peer's: more work and slower work alike."""
    return _by_step_times(ranks, pipeline, step_compute_ns)


def host_slowdown(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Slowdown:
    """Slowdown of the host, by the time per step in which it is free to run (`free_host`)."""
    return _by_step_times(ranks, pipeline, _free_host)


def _by_step_times(
    ranks: Sequence[RankFacts], pipeline: Pipeline | None, step_times_ns: Callable[[RankFacts], Array]
) -> Slowdown:
    steps = min((len(f.steps) for f in ranks), default=0)
    if not steps:
        return _unknown(len(ranks))
    times = np.array([step_times_ns(f)[:steps] for f in ranks], float)
    return _from_times(times, peers(len(ranks), pipeline))


def _free_host(facts: RankFacts) -> Array:
    return intervals.overlap(free_host(facts), *facts.marks)


def interference(ranks: Sequence[RankFacts]) -> float:
    """How much longer kernels take beside communication than alone, relative; 0 where too few kernels ran both ways.

    Communication kernels take SMs and bandwidth even while they wait (the gamma of Proteus, TPDS'24).
    """
    ratios: list[float] = []
    weights: list[float] = []
    kernels: set[str] = set()
    for facts in ranks:
        if not len(facts.steps):
            continue
        table = _kernel_table(facts, len(facts.steps))
        for name, (count, time) in table.items():
            other = table.get(BESIDE_MARK + name)
            if other is None or not time.sum() or not other[0].sum():  # what takes no time has no ratio
                continue
            ratio = float(other[1].sum() / other[0].sum()) / float(time.sum() / count.sum())
            if ratio > 1 + MAX_INTERFERENCE:
                continue
            ratios.append(ratio)
            weights.append(float(other[1].sum()))
            kernels.add(name)
    if len(kernels) < MIN_KERNELS_BOTH_WAYS:
        return 0.0
    order = np.argsort(ratios)
    reach = np.cumsum(np.array(weights)[order])
    typical = float(np.array(ratios)[order][np.searchsorted(reach, reach[-1] / 2)])
    return max(0.0, typical - 1.0)

"""Slowdown of a rank against its peers: its time for work that they do too, over theirs, per step.

Compute compares the same kernels (same name, shapes and place in the step) on ranks that run the same program, so that
more work is not mistaken for slow hardware. Host compares the time per step in which the host is free to run
(`free_host`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.work import computed_in_steps, computes, free_host, step_compute_ns
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.peers.kernels import COUNT_TOLERANCE, compared, kernels_by_place
from ddprof.analyzers.job.peers.operators import (
    MORE_WORK_SHARE,
    ExtraOperators,
    Ran,
    extra_operators,
    operators_run,
    pace_of_equal,
    tallied,
    times_by_name,
)
from ddprof.tables import Array

MIN_KERNELS_BOTH_WAYS = 4  # that ran both ways, before their interference means anything
MAX_INTERFERENCE = 0.5  # relative; the same name taking longer by more is doing other work, as a backward pass does


@dataclass(frozen=True)
class Slowdown:
    """Time over that of the typical peer for the same work: 1.10 is 10 % longer. NaN where nothing can be compared."""

    factor: Array  # (ranks,), median over steps
    per_step: Array  # (ranks, steps)
    time_us: Array  # (ranks,), comparable time per step
    coverage: Array  # (ranks,), share of the rank's time that could be compared
    more_work: Array  # (ranks,), share of time in excess counts of kernels: work the peers do not have
    extra: ExtraOperators | None = None  # of CPU ranks, step by step

    @property
    def has_more(self) -> Array:
        """Mask of ranks with work that their peers do not have, whose longer time is not slowness; shape (ranks,)."""
        return np.asarray(self.more_work >= MORE_WORK_SHARE)

    @property
    def turns(self) -> Array:
        """Positions of ranks that run operators in some steps that their peers run in others; shape (ranks that do,).
        Chance puts no operator into a step, however busy the machine is.
        """
        if self.extra is None:
            return np.empty(0, np.int64)
        late = np.flatnonzero((self.extra.share >= MORE_WORK_SHARE).any(axis=1))
        return late if len(late) > 1 else late[:0]


def peers(count: int, pipeline: Pipeline | None) -> list[list[int]]:
    """Positions that run the same program: the ranks of one pipeline stage, else all."""
    if pipeline is None:
        return [list(range(count))]
    staged = {p for stage in pipeline.stages for p in stage}
    rest = [p for p in range(count) if p not in staged]
    return [sorted(stage) for stage in pipeline.stages] + ([rest] if rest else [])


def compute_slowdown(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Slowdown:
    """Slowdown of compute, by the durations of equal kernels, or of equal operators of CPU ranks; of these by all that
    they compute where hardly any are equal.
    """
    steps = min(len(f.steps) for f in ranks)
    if any(len(f.host_work) for f in ranks):
        busy = np.array([step_compute_ns(f)[:steps] for f in ranks], float)
        groups = peers(len(ranks), pipeline)
        whole, pace = _from_times(busy, groups), np.full(busy.shape, np.nan)
        for group in (group for group in groups if len(group) > 1):
            pace[group] = pace_of_equal([ranks[p] for p in group], steps, busy[group])
        per_step = np.where(np.isfinite(pace), pace, whole.per_step)
        more = _more_operators(ranks, steps, groups)
        extra = extra_operators(ranks, steps, groups)
        return replace(whole, factor=_median(per_step), per_step=per_step, more_work=more, extra=extra)
    factor_steps = np.full((len(ranks), steps), np.nan)
    time_us, coverage, more = np.zeros((3, len(ranks)))
    kernels = [kernels_by_place(f, steps) for f in ranks]
    for group in peers(len(ranks), pipeline):
        launches = [_launches(ranks[p], steps) for p in group]
        usual = _usual_launches(launches)
        against = compared([kernels[p] for p in group], steps)
        for p, launched, times in zip(group, launches, against, strict=True):
            if not times.took_ns.any():
                continue
            factor_steps[p] = _weighted_median(times.took_ns, times.expected_ns)
            time_us[p] = times.took_ns.sum() / steps / 1e3
            coverage[p] = times.took_ns.sum() / max(1.0, _compute_ns(ranks[p], steps))
            more[p] = _more_work(launched, usual)
    return Slowdown(_median(factor_steps), factor_steps, time_us, coverage, more)


def typical_us(slowdown: Slowdown, pipeline: Pipeline | None) -> Array:
    """Comparable time of each rank's typical peer, us, shape (ranks,); 0 where no peer can be compared."""
    times, usable = slowdown.time_us, np.isfinite(slowdown.factor)
    typical = np.zeros(len(times))
    for group in peers(len(times), pipeline):
        comparable = [position for position in group if usable[position]]
        typical[group] = averages.typical(times[comparable]) if comparable else 0.0
    return typical


def unknown_slowdown(count: int, steps: int) -> Slowdown:
    """Slowdown of ranks before any comparison: all NaN."""
    time_us, coverage, more = np.zeros((3, count))
    return Slowdown(np.full(count, np.nan), np.full((count, steps), np.nan), time_us, coverage, more)


def _compute_ns(facts: RankFacts, steps: int) -> float:
    """Time of the compute kernels that begin in the first so many steps."""
    ops = facts.device_ops
    first_ns, last_ns = facts.steps["start_ns"][0], facts.steps["end_ns"][steps - 1]
    in_steps = (ops["work"] == Work.COMPUTE) & (ops["start_ns"] >= first_ns) & (ops["start_ns"] < last_ns)
    return float((ops["end_ns"] - ops["start_ns"])[in_steps].sum())


def _weighted_median(times: Array, expected: Array) -> Array:
    """Per step the median over kernels of time / expected, weighted by expected time; shape (steps,).

    Robust to odd kernels.
    """
    result = np.full(times.shape[1], np.nan)
    for step in range(times.shape[1]):
        usable = expected[:, step] > 0
        if usable.any():
            weight = expected[usable, step]
            result[step] = averages.weighted_median(times[usable, step] / weight, weight)
    return result


def _more_operators(ranks: Sequence[RankFacts], steps: int, groups: Sequence[Sequence[int]]) -> Array:
    """Share of the time of CPU ranks in operators that their peers do not run, or not as often; shape (ranks,)."""
    more = np.zeros(len(ranks))
    for group in groups:
        ran = [operators_run(ranks[p], steps) for p in group]
        usual = _usual_launches(ran)
        more[list(group)] = [_more_work(operators, usual) for operators in ran]
    return more


def _launches(facts: RankFacts, steps: int) -> Ran:
    """Launches over all steps and shapes, by (operator, kernel); operator "" where it is not known."""
    ops, (rows, _) = facts.device_ops, computed_in_steps(facts, steps)
    return tallied(facts, ops["operator"][rows], ops["name"][rows], (ops["end_ns"] - ops["start_ns"])[rows])


def _usual_launches(ranks: Sequence[Ran]) -> dict[tuple[str, str], float]:
    """Launches of each kernel on the typical rank, and of each operator as (operator, ""); 0 without it."""
    counts: dict[tuple[str, str], list[float]] = defaultdict(list)
    for launches in ranks:
        of_operators = {(operator, ""): count for operator, count in times_by_name(launches).items()}
        for key, count in {**{k: c for k, (c, _) in launches.items()}, **of_operators}.items():
            counts[key].append(count)
    return {key: averages.typical(seen + [0.0] * (len(ranks) - len(seen))) for key, seen in counts.items()}


def _more_work(launches: Ran, usual: dict[tuple[str, str], float]) -> float:
    """Share of a rank's time in launches its peers lack.

    Kernels that take the place of others, since longer samples or more tokens have other shapes, are no more launches
    of their operator.
    """
    total = sum(spent for _, spent in launches.values())
    excess: dict[str, tuple[float, float]] = {}  # operator -> (launches, ns)
    for key, (count, spent) in launches.items():
        if count > usual[key] * (1 + COUNT_TOLERANCE):
            more, ns = excess.get(key[0], (0.0, 0.0))
            share = (count - usual[key]) / count
            excess[key[0]] = (more + count - usual[key], ns + spent * share)
    by_operator = times_by_name(launches)
    lacking = 0.0
    for operator, (more, ns) in excess.items():
        lacking += ns * min(1.0, max(0.0, by_operator[operator] - usual[operator, ""]) / more)
    return lacking / total if total else 0.0


def _from_times(times: Array, groups: Sequence[Sequence[int]]) -> Slowdown:
    """Slowdown from ns per rank and step, shape (ranks, steps), against the peers in each group."""
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
    """Slowdown of a step's whole compute, whatever its shapes: more work and slower work alike."""
    return _by_step_times(ranks, pipeline, step_compute_ns)


def host_slowdown(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Slowdown:
    """Slowdown of each host by its free time per step (`free_host`), on CPU ranks without what it lacked a CPU for."""

    def free_ns(facts: RankFacts) -> Array:
        return np.maximum(0.0, intervals.overlap(free_host(facts), *facts.marks) - _lacked_ns(facts))

    return _by_step_times(ranks, pipeline, free_ns)


def _lacked_ns(facts: RankFacts) -> Array:
    """Time of each traced step for which a CPU rank was ready to run and had no CPU, beside its loader and its backward
    pass, where it may be waiting anyway; 0 where that was not counted. Shape (steps,)."""
    if not computes(facts):
        return np.zeros(len(facts.steps))
    counted = {
        step.index: max(0, step.waited_ns - step.backward_waited_ns - step.data_waited_ns)
        for step in facts.sidecar.steps
        if step.profiled and step.waited_ns is not None
    }
    return np.array([counted.get(index, 0) for index in facts.steps["index"].tolist()], float)


def _by_step_times(
    ranks: Sequence[RankFacts], pipeline: Pipeline | None, step_times_ns: Callable[[RankFacts], Array]
) -> Slowdown:
    steps = min(len(f.steps) for f in ranks)
    times = np.array([step_times_ns(f)[:steps] for f in ranks], float)
    return _from_times(times, peers(len(ranks), pipeline))


def interference(ranks: Sequence[RankFacts]) -> float:
    """Excess duration of kernels beside communication over alone, relative; 0 where too few ran both ways.

    Communication kernels take SMs and bandwidth even while they wait (the gamma of Proteus, TPDS'24).
    """
    ratios: list[float] = []
    weights: list[float] = []
    kernels: set[tuple[str, str]] = set()
    for facts in ranks:
        run = kernels_by_place(facts, len(facts.steps))
        way = np.where(run.is_either, 2 * run.name + run.is_beside, 2 * len(run.names))
        count = np.bincount(way, minlength=2 * len(run.names) + 1)[:-1].reshape(-1, 2)
        time_ns = np.bincount(way, weights=run.dur_ns, minlength=2 * len(run.names) + 1)[:-1].reshape(-1, 2)
        for name in np.flatnonzero((count > 0).all(axis=1) & (time_ns[:, 0] > 0)).tolist():  # no time has no ratio
            alone_ns, beside_ns = time_ns[name] / count[name]
            if beside_ns > alone_ns * (1 + MAX_INTERFERENCE):
                continue
            ratios.append(float(beside_ns / alone_ns))
            weights.append(float(time_ns[name, 1]))
            kernels.add(run.names[name])
    if len(kernels) < MIN_KERNELS_BOTH_WAYS:
        return 0.0
    return max(0.0, averages.weighted_median(np.array(ratios), np.array(weights)) - 1.0)

"""Kernels beside communication, in a run whose pauses are shorter without the profiler: one baseline, priced alike."""

from dataclasses import replace
from pathlib import Path

import corpus
import pytest
from labelled_runs import drawn, run_of
from msgspec import structs

from benchmarks.oracle.simulate import step_time
from benchmarks.oracle.small_runs import fault
from benchmarks.oracle.spec import Scenario
from ddprof.analyzers.replay.price import Pricer
from ddprof.findings import Change
from ddprof.sidecar import Pause, StepTimes

PROFILED_STEPS, UNPROFILED_STEPS, INTERFERENCE, GC_US = 5, 40, 0.3, 8_000.0
SLOW = fault("straggler.compute", 0.3, 2, mode="all")


def scenario(gc_us: float, *others: object) -> Scenario:
    """Four ranks that collect garbage at different times, with kernels that run slower beside communication."""
    spec = corpus.job(fault("host.gc", gc_us, chance=0.6), steps=PROFILED_STEPS)
    return replace(spec, noise=replace(spec.noise, contention=INTERFERENCE), faults=(*spec.faults, *others))


def priced(folder: Path) -> tuple[Pricer, float]:
    """A run recorded with collections twice as long as without the profiler, and its unprofiled step (us)."""
    profiled, unprofiled_us = scenario(2 * GC_US, SLOW), step_time(scenario(GC_US, SLOW))
    lengths = [(9e4, False)] + [(step_time(profiled), True)] * PROFILED_STEPS + [(5e5, False)]
    lengths += [(unprofiled_us, False)] * UNPROFILED_STEPS
    ranks = []
    for facts in drawn(profiled, folder).job.ranks:
        start, end = facts.spans_of("gc").bounds
        gc_ns = int((end - start).sum()) / PROFILED_STEPS
        steps, pauses, now = [], [], 0
        for index, (us, is_profiled) in enumerate(lengths):
            steps.append(StepTimes(index=index, start_ns=now, end_ns=now + int(us * 1e3), profiled=is_profiled))
            pauses.append(Pause(start_ns=now, dur_ns=int(gc_ns if is_profiled else gc_ns / 2)))
            now = steps[-1].end_ns
        ranks.append(replace(facts, sidecar=structs.replace(facts.sidecar, steps=tuple(steps), gc=tuple(pauses))))
    return run_of(ranks).pricer, unprofiled_us


def test_both_runs_are_priced_against_their_own_step(tmp_path: Path) -> None:
    """No change gains nothing; the slow device made fast gives the generator's step without the profiler."""
    prices, unprofiled_us = priced(tmp_path)
    assert prices.graph.interference == pytest.approx(INTERFERENCE, abs=0.05)
    nothing = (Change("remove_host", target="allocator"),)
    assert prices.step_us(nothing) == pytest.approx(prices.measures.step_us, rel=1e-6)
    assert prices.unprofiled_us(nothing) == pytest.approx(unprofiled_us, rel=1e-4)
    predicted = prices.unprofiled_us((Change("scale_compute", (2,), (1.3,)),))
    assert predicted == pytest.approx(step_time(scenario(GC_US)), rel=0.01)

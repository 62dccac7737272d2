"""A replay without a change is the recorded run; its critical path runs through who is to blame. Scaled time of hosts,
shared cores and pauses keep one baseline."""

import math
from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pytest
from captured import prices_with
from cpu_loop import cpu_loop
from gloo_traces import Events, all_reduce, annotation, in_steps
from hypothesis import given
from hypothesis import strategies as st
from kineto_run import Script, loaded
from labelled_runs import Runs, drawn, run_of
from msgspec import structs
from overlapped import STEPS, TRANSFER_US, WORK_US, overlapped

from benchmarks.oracle.simulate import step_time
from benchmarks.oracle.small_runs import fault
from benchmarks.oracle.spec import Scenario as Simulated
from ddprof import intervals
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.execution.choose import CPU
from ddprof.analyzers.replay.critical import critical_path
from ddprof.analyzers.replay.graph.program import write_program
from ddprof.analyzers.replay.host_time import Scaled, by_level, on_top
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.price import Pricer, hosts_sharing_cores
from ddprof.analyzers.replay.simulate import simulate
from ddprof.causes import CAUSE_CODE
from ddprof.findings import Change
from ddprof.sidecar import Pause, StepTimes

of_each = pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.pp", "straggler.compute"])


@of_each
def test_an_empty_scenario_changes_nothing(labelled: Runs, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = simulate(graph := labelled(name).pricer.graph)
    monkeypatch.setenv("DDPROF_NATIVE", "0")  # the pass in Python, beside that in C where it was built
    assert simulate(graph, Scenario()) == outcome == simulate(graph, Scenario() + Scenario())


@of_each
def test_pieces_follow_one_another_from_first_mark_to_last_end(labelled: Runs, name: str) -> None:
    graph = labelled(name).pricer.graph
    path = critical_path(labelled(name).job, graph)
    assert (path["start_ns"][1:] == path["end_ns"][:-1]).all() and (path["end_ns"] > path["start_ns"]).all()
    assert int(path["end_ns"][-1] - path["start_ns"][0]) == pytest.approx(graph.measured_ns, rel=0.02)
    assert int(path["start_ns"][0]) in {rank.origin_ns - rank.offset_ns for rank in graph.ranks}


def test_the_path_runs_through_the_slow_rank_waits_for_nobody_and_needs_a_graph(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    path, none = critical_path(run.job, run.pricer.graph), np.empty(0, np.int64)
    assert CAUSE_CODE["comm_wait"] not in path["cause"]
    length = np.bincount(path["rank"], weights=path["end_ns"] - path["start_ns"], minlength=len(run.job.ranks))
    assert run.job.rank_ids[int(length.argmax())] == 2 and length.max() > 0.8 * length.sum()
    assert len(critical_path(labelled("clean.ddp").job, Graph((), none, 0.0, write_program((), none), ()))) == 0


def test_a_window_without_marks_ends_when_the_device_does(tmp_path: Path) -> None:
    script = Script()
    for number in range(40):
        script.launch(f"gemm_{number}", 500.0)
    prices = loaded([script], tmp_path).pricer
    assert prices.step_us((Change("scale_compute", (), (2.0,)),)) < 0.6 * prices.measures.step_us


@pytest.mark.parametrize(("left", "late_ms"), [(0.0, 0), (0.6, 3), (1.0, 5)])
def test_what_made_a_rank_late_for_its_window_may_be_removed(labelled: Runs, left: float, late_ms: int) -> None:
    """Other ranks enter theirs 5 ms before rank 0, whose host is busy until then."""
    graph = labelled("clean.ddp").pricer.graph
    first, *others = graph.ranks
    begin, early = first.origin_ns, [replace(rank, begin_ns=rank.begin_ns - 5_000_000) for rank in others]
    graph = replace(graph, ranks=(first, *early))
    busy = np.array([begin - 9_000_000]), np.array([begin])
    outcome = simulate(graph, Scenario(host_scale={first.position: ((busy, left),)}))
    assert [lead / 1e6 for lead in outcome.lead_ns[1:]] == pytest.approx([late_ms] * len(others), abs=0.05)
    assert outcome.sections_ns[0][0] == pytest.approx(begin - first.offset_ns - (5 - late_ms) * 1e6, abs=50_000)


PROFILED_STEPS, UNPROFILED_STEPS, INTERFERENCE, GC_US = 5, 40, 0.3, 8_000.0
SLOW = fault("straggler.compute", 0.3, 2, mode="all")


def scenario(gc_us: float, *others: object) -> Simulated:
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


END = 60
SPANS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=4)
PARTS = st.lists(st.tuples(SPANS, st.sampled_from((0.0, 0.5, 2.0))), max_size=3)


def scaled(parts: list[tuple[list[tuple[int, int]], float]]) -> Scaled:
    spans = [np.array(spans, np.int64).reshape(-1, 2).T for spans, _ in parts]
    return tuple((intervals.union(*ends), share) for ends, (_, share) in zip(spans, parts, strict=True))


def share_at(parts: Scaled, at: int) -> float:
    return math.prod(share ** int(((start <= at) & (at < end)).sum()) for (start, end), share in parts)


@given(PARTS, PARTS)
def test_one_on_top_of_the_other_is_their_product(first: list, second: list) -> None:
    a, b = scaled(first), scaled(second)
    both = on_top(a, b)
    for at in range(END):
        # Shares are kept to four digits after each factor; the sixth may double what the fifth lost.
        assert share_at(both, at) == pytest.approx(share_at(a, at) * share_at(b, at), abs=2e-4)
    merged = intervals.union(*(np.concatenate([spans[side] for spans, _ in both] or [[]]) for side in (0, 1)))
    assert sum(intervals.length(spans) for spans, _ in both) == intervals.length(merged)  # disjoint


def test_pieces_of_about_one_factor_are_kept_together() -> None:
    spans = np.array([0, 10, 20, 30]), np.array([5, 15, 25, 35])
    (((start, _), factor),) = by_level(spans, np.array([1.0, 1.5, 1.501, 1.004]))
    assert start.tolist() == [10, 20] and factor == 1.5


def test_what_one_change_removes_is_not_there_for_another(tmp_path: Path) -> None:
    """A step of 28.5 ms, of which the script's own Python is 8."""

    def logs(script: Script) -> None:
        with script.frame("train.py(40): log_values"):
            script.idle(8_000.0)

    run = run_of([cpu_loop(tmp_path, before=logs)])
    changes = (Change("no_script", (), (0.0,)), Change("scale_compute", (), (2.0,)))
    assert run.pricer.step_us(changes) == pytest.approx((run.measures.step_us - 8_000.0) / 2, rel=0.02)


LOAD_US = 30_000.0


def on_cores(run: LoadedRun, cores: int, more_ranks: int = 0) -> Pricer:
    return prices_with(run, {"processors": {"usable": cores, "local_ranks": len(run.job.ranks) + more_ranks}})


def test_work_beside_transfers_speeds_up_as_they_shrink(tmp_path: Path) -> None:
    """Two ranks that compute and two threads that move data on two cores: twice as long as without these."""
    run = overlapped(tmp_path)
    step_us = run.measures.step_us
    half, gone = ((Change("scale_transfer", (), (factor,)),) for factor in (0.5, 0.0))
    plenty, two = on_cores(run, 64), on_cores(run, 2)
    assert plenty.step_us(gone) == pytest.approx(step_us, rel=0.01)  # hidden anyway
    factor = (2 + 2 * CPU.limits.moving_threads) / 2
    assert step_us - two.step_us(gone) == pytest.approx(TRANSFER_US * (1 - 1 / factor), rel=0.1)
    assert 0.3 < (step_us - two.step_us(half)) / (step_us - two.step_us(gone)) < 0.9


def late(folder: Path, others: int) -> LoadedRun:
    """Ranks of which the last loads for 30 ms while the others wait for it; then a collective."""
    period_us = LOAD_US + WORK_US + 1_000

    def play(rank: int, began: float) -> Events:
        loading = LOAD_US if rank == others else 100.0
        batch = annotation(rank, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", began, loading)
        called = began + loading + WORK_US
        return [batch, *all_reduce(rank, called, WORK_US, began + period_us - called)]

    return in_steps(folder, STEPS, period_us, play, others + 1)


def test_ranks_that_no_longer_wait_compute_side_by_side(tmp_path: Path) -> None:
    """Recorded, the late rank had the host to itself; on time it shares it."""
    on_time = (Change("instant_loader"),)
    run = late(tmp_path / "four", 3)
    alone, shared = on_cores(run, 64).step_us(on_time), on_cores(run, 2).step_us(on_time)
    assert alone == pytest.approx(WORK_US + 1_000, rel=0.05)
    assert shared > 1.2 * alone  # four ranks on two cores; three of them shared these in the recording already
    assert on_cores(run, 2).step_us(()) == pytest.approx(run.measures.step_us)
    two = late(tmp_path / "two", 1)
    side_by_side_us = (WORK_US + 1_000) * (1 + CPU.limits.all_cores_excess)
    assert on_cores(two, 2).step_us(on_time) == pytest.approx(side_by_side_us, rel=0.05)


def test_hosts_whose_ranks_are_not_all_traced_are_left_alone(tmp_path: Path) -> None:
    assert hosts_sharing_cores(on_cores(overlapped(tmp_path), 2, more_ranks=1).graph) == ()

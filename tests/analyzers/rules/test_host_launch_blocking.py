"""CUDA_LAUNCH_BLOCKING=1 that was left on: launch calls that outlast their kernels."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kineto_run import Script, in_step, loaded, meet
from labelled_runs import abstains, candidate, candidates, on_every_rank, serious
from msgspec.structs import replace

from ddprof.analyzers.engine import LoadedRun

ID = "host.launch_blocking"
KERNELS = 30
RETURN_US = 3.0  # from the end of a kernel to the return of a call that waits for it
Launch = Callable[[Script, float], None]


def usual(script: Script, dur_us: float) -> None:
    """A launch whose call returns at once."""
    script.launch(dur_us=dur_us)


def blocking(script: Script, dur_us: float) -> None:
    """A launch whose call, and the operator around it, return after the kernel has ended."""
    script.launch(dur_us=dur_us)
    returns_late(script, operators=1)


def returns_late(script: Script, operators: int = 0) -> None:
    """The last launch call returns after its kernel, and so do the operators around it."""
    *around, call, kernel = script.events[-2 - operators :]
    late_us = kernel["ts"] + kernel["dur"] + RETURN_US - call["ts"] - call["dur"]
    for event in (*around, call):
        event["dur"] += late_us
    script.now_us += late_us


def synchronised(script: Script, dur_us: float) -> None:
    """A launch, and a synchronising call after it."""
    script.launch(dur_us=dur_us)
    script.synchronise("cudaStreamSynchronize")


def run(folder: Path, *launches: Launch, dur_us: float = 60.0, longest_us: float = 60.0) -> LoadedRun:
    """Ranks that launch so; the first kernel of each step is the longest."""

    def step(script: Script, rank: int, _: int) -> None:
        launches[rank](script, longest_us)
        for _ in range(KERNELS):
            launches[rank](script, dur_us)

    return loaded(in_step(len(launches), 5, step), folder)


@pytest.mark.parametrize(("dur_us", "longest_us"), [(60.0, 60.0), (40.0, 3_000.0), (10.0, 10.0)])
def test_launches_that_outlast_kernels_explain_an_idle_device(tmp_path: Path, dur_us: float, longest_us: float) -> None:
    """The device idles between all kernels: the host is not slow, it stalls nowhere, and nothing else synchronises."""
    blocked = run(tmp_path, blocking, blocking, dur_us=dur_us, longest_us=longest_us)
    twin = run(tmp_path, usual, usual, dur_us=dur_us, longest_us=longest_us)
    said = candidate(ID, blocked.measures)
    gain_us = blocked.measures.step_us - twin.measures.step_us
    assert gain_us > 0.1 * blocked.measures.step_us and blocked.pricer.gain_us(said) == pytest.approx(gain_us, rel=0.1)
    assert serious(blocked.report) == {ID: ()}
    (first, *_) = blocked.report.findings
    assert first.recoverable_us.low < gain_us < first.recoverable_us.high
    assert said.ranks == () and "unset CUDA_LAUNCH_BLOCKING" in (said.fixes[0].patch or "")
    for other in ("host.sync", "host.launch_bound"):
        assert candidates(other, blocked.measures) == [] and candidates(ID, twin.measures) == []


def test_launches_that_wait_on_one_rank_are_named_and_calls_that_wait_are_not(tmp_path: Path) -> None:
    synced = run(tmp_path, synchronised, synchronised)
    assert candidates(ID, synced.measures) == [] and serious(synced.report) == {"host.sync": ()}
    one = run(tmp_path, usual, usual, blocking)
    assert serious(one.report) == {ID: (2,)} and "on rank 2" in candidate(ID, one.measures).summary


def test_a_slow_device_is_seen_beside_launches_that_wait(tmp_path: Path) -> None:
    """Its peers wait for it in the launch of the all-reduce, which is no time of their hosts."""
    scripts = [Script() for _ in range(3)]
    for _ in zip(*(script.steps(5) for script in scripts), strict=True):
        for rank, script in enumerate(scripts):
            for _ in range(KERNELS):
                blocking(script, 90.0 if rank == 1 else 60.0)
        meet(scripts)
        for script in scripts:
            returns_late(script)
    job = loaded(scripts, tmp_path)
    assert serious(job.report) == {ID: (), "straggler.compute": (1,)}
    assert job.pricer.gain_us(candidate("straggler.compute", job.measures)) == pytest.approx(KERNELS * 30.0, rel=0.1)


def test_a_few_calls_that_outlast_their_kernels_are_chance(tmp_path: Path) -> None:
    """A call of 10 us that launches a kernel of 2 us may return after it."""

    def some(script: Script, dur_us: float) -> None:
        (blocking if script.launches % 3 else usual)(script, dur_us)

    assert candidates(ID, run(tmp_path, some, some, dur_us=2.0).measures) == []


def test_the_value_that_capture_saw_is_said(tmp_path: Path) -> None:
    measures = run(tmp_path, blocking).measures
    (facts,) = measures.job.ranks
    for value, current in (("1", "CUDA_LAUNCH_BLOCKING=1"), ("0", None)):
        sidecar = replace(facts.sidecar, communication_environment={"CUDA_LAUNCH_BLOCKING": value})
        assert candidate(ID, on_every_rank(measures, sidecar=sidecar)).fixes[0].current == current


def test_what_the_calls_hide_is_not_judged(tmp_path: Path) -> None:
    assert "launch calls wait" in abstains("host.launch_bound", run(tmp_path, blocking, blocking, dur_us=4.0).measures)

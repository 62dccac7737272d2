"""Unequal work whose victim changes from step to step: the data and not a device."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from busy_ranks import DUR_US, busy_ranks
from captured import counted, fed, with_sidecars
from kineto_run import Script, in_step, loaded
from labelled_runs import Runs, candidate, candidates, fires, only_run, run_of, serious

from ddprof.analyzers.trust.busy_machine import explained_by_a_busy_machine

ID = "straggler.imbalance"
Work = Callable[[Script, int, int], None]


def test_blames_no_rank_where_the_slowest_changes_and_says_who_was_fed_more(labelled: Runs) -> None:
    run = labelled(ID)
    assert fires(run, ID).changes[0].kind == "balance_compute"
    text = candidate(ID, fed(run, lambda rank, step: 300 if step % 4 == rank else 100)).evidence[0].text
    assert "3.00x the elements" in text and "moves between ranks" in text
    assert "equally large batches" in candidate(ID, fed(run, lambda rank, step: 100)).evidence[0].text
    measures = fed(labelled("straggler.compute"), lambda rank, step: 300 if rank == 1 else 100)
    blind = replace(measures, compute=replace(measures.compute, factor=np.full(len(measures.job.ranks), np.nan)))
    assert candidate(ID, blind).ranks == (1,)


def layers(script: Script, dur_us: float, name: str = "gemm", count: int = 20) -> None:
    script.launch(name, dur_us=dur_us, times=count)


def some_longer_kernels(script: Script, rank: int, step: int) -> None:
    layers(script, 200.0)
    layers(script, 300.0 if rank == 2 else 150.0, "expert", 5)


def larger_batch(script: Script, rank: int, step: int) -> None:
    script.copy(1_500_000 if rank == 1 else 1_000_000)
    layers(script, 300.0 if rank == 1 else 200.0)


def longer_for_the_same_batch(script: Script, rank: int, step: int) -> None:
    script.copy(1_000_000)
    layers(script, 300.0 if rank == 1 else 200.0)


def slow_by_factors_of_its_own(script: Script, rank: int, step: int) -> None:
    """A slow worker as published: backward passes take 2.27, forward passes 2.51 times as long."""
    layers(script, 454.0 if rank == 1 else 200.0)
    layers(script, 376.0 if rank == 1 else 150.0, "forward", 15)


def scattered(script: Script, rank: int, step: int) -> None:
    layers(script, 200.0 + ((rank * 7 + step * 3) % 5) * 0.5)


@pytest.mark.parametrize(
    ("work", "found"),
    [
        *((some_longer_kernels, {ID: (2,)}), (larger_batch, {ID: (1,)})),
        *((work, {"straggler.compute": (1,)}) for work in (longer_for_the_same_batch, slow_by_factors_of_its_own)),
        (scattered, {}),
    ],
)
def test_more_work_is_told_from_a_slow_device(tmp_path: Path, work: Work, found: dict[str, tuple[int, ...]]) -> None:
    assert serious(loaded(in_step(4, 5, work), tmp_path).report) == found


def test_backward_passes_that_one_rank_has_more_of_are_counted(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        for _ in range(5 if rank == 0 else 3):
            with script.frame("ddprof::backward", "user_annotation"):
                layers(script, 200.0, count=5)
            script.idle(10.0)

    said = [f.summary for f in loaded(in_step(4, 5, work), tmp_path).report.findings if f.id == ID]
    assert said == ["rank 0 runs 5 backward passes per step, its peers 3"]


def test_work_of_one_rank_alone_in_one_step_is_named_and_priced(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        layers(script, 200.0)
        if (rank, step) == (0, 2):
            layers(script, 180.0, "evaluation kernel")

    made = loaded(in_step(4, 5, work), tmp_path)
    assert serious(made.report) == {ID: (0,)}
    (finding,) = [f for f in made.report.findings if f.id == ID]
    assert finding.recoverable_us.value == pytest.approx(20 * 180.0 / 5, rel=0.15)


def test_the_python_around_work_of_one_rank_alone_is_priced_with_it(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        with script.frame("train.py(3): main"):
            layers(script, 200.0)
            if rank == 0:
                with script.frame("train.py(40): histograms"):
                    layers(script, 400.0, "histogram", 5)
                    script.synchronise()
                    script.idle(3_000.0)

    made = loaded(in_step(4, 5, work), tmp_path)
    assert serious(made.report)[ID] == (0,)
    (finding,) = [f for f in made.report.findings if f.id == ID]
    assert "histograms()" in finding.summary
    assert finding.recoverable_us.value == pytest.approx(5 * 400.0 + 3_000.0, rel=0.05)


@pytest.mark.parametrize(
    ("name", "rank", "words", "cure"),
    [
        ("hot expert", 3, "the experts of rank 3 get", "load-balancing loss"),
        ("hot expert, with shapes", 0, "the experts of rank 0 get", "capacity factor"),
        ("hot table", 1, "the embedding tables of rank 1 get", "split the hot table"),
    ],
)
def test_hot_shards_are_named(labelled: Runs, name: str, rank: int, words: str, cure: str) -> None:
    run = labelled(name)
    said = fires(run, ID, rank)
    assert said.summary.startswith(words) and cure in said.fixes[0].suggested
    assert run.score.gain_error is not None and run.score.gain_error < 0.02  # of the step: tokens go to the others
    assert run.said("straggler.compute") == [] and run.score.right


def test_a_larger_batch_costs_what_its_rank_loads_longer_too(tmp_path: Path) -> None:
    """Three times the samples take three times as long to fetch and to compute; the fix is a batch of equal size."""

    def work(script: Script, rank: int, step: int) -> None:
        script.copy(1_000_000)
        loading_us = 3_000.0 if rank == 1 else 1_000.0
        script.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", loading_us, "user_annotation")
        layers(script, 300.0 if rank == 1 else 100.0)

    made = loaded(in_step(4, 5, work), tmp_path)
    ranks = [counted(f, samples, 10 * samples) for f, samples in zip(made.job.ranks, (64, 192, 64, 64), strict=True)]
    report = run_of(ranks).report
    found = next(finding for finding in report.findings if finding.id == ID)
    assert found.ranks == (1,) and "batches of 192 samples against 64" in found.summary
    assert found.fixes[0].setting == "batch size of rank 1"
    assert found.recoverable_us.value == pytest.approx(2_000.0 + 20 * 200.0, rel=0.2)
    assert not [finding for finding in report.findings if finding.id in ("straggler.host", "straggler.compute")]


@pytest.mark.parametrize(
    ("extra", "often", "share"),
    [
        (lambda rank, step: 4 * (rank == step % 2), 6, 0.75),  # from half of the extra work to all of it
        (lambda rank, step: 4 * (rank == step % 3), 4, 0.75 * 2 / 3),
    ],
    ids=["each-step", "two-of-three-steps"],
)
def test_operators_of_ranks_in_turn_stand_on_a_busy_machine(
    tmp_path: Path, extra: Callable[[int, int], int], often: int, share: float
) -> None:
    run = only_run(busy_ranks(tmp_path / "run", extra=extra))
    busy = with_sidecars(run, {"cpu_waits": {"windows": [{"dur_ns": 100, "cpu_ns": 50, "waited_ns": 40}]}})
    told = candidate(ID, busy)
    assert told.ranks == () and explained_by_a_busy_machine(told, busy) is None
    assert told.summary.startswith(f"one rank at a time runs extra operators, in {often} of 6 steps")
    assert "aten::matmul" in told.summary and run.pricer.gain_us(told) == pytest.approx(share * 4 * DUR_US, rel=0.05)


@pytest.mark.parametrize("extra", [lambda rank, step: 0, lambda rank, step: 4 * (step % 2), lambda rank, step: rank])
def test_operators_that_no_ranks_have_in_turn_are_no_turns(tmp_path: Path, extra: Callable[[int, int], int]) -> None:
    """None, the same on both ranks in some steps, and those of one rank alone."""
    run = only_run(busy_ranks(tmp_path / "run", extra=extra))
    assert not any("at a time" in one.summary for one in candidates(ID, run.measures))


def exchange(scripts: list[Script], tokens: Sequence[float]) -> None:
    """An all-to-all to which each rank gives so many thousand tokens."""
    last_us = max(max(script.free_us, script.now_us + 5) for script in scripts)
    for script, given in zip(scripts, tokens, strict=True):
        script.reduce(last_us + 30.0, int(1000 * given), len(scripts), "all_to_allv")


EQUAL = (1.0, 1.0, 1.0, 1.0)
HOT = (3.25, 0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("own", "loads", "named", "words", "gain"),
    [
        (EQUAL, lambda step: EQUAL, (), "", 0.0),
        (EQUAL, lambda step: HOT, (0,), "the experts of rank 0 get 3.25x", 2.25),
        ((0.6, 0.87, 1.13, 1.4), lambda step: EQUAL, (), "", 0.0),
        (EQUAL, lambda step: (0.0, 0.0, 2.0, 2.0), (2, 3), "the experts of ranks 2, 3 get 2.00x", 1.0),
        (EQUAL, lambda step: np.roll(HOT, step // 3), (), "the busiest experts get 3.25x", 2.25),
        (EQUAL, lambda step: HOT if step % 4 == 3 else EQUAL, (0,), "the experts of rank 0 get 3.25x", 2.25 / 4),
    ],
    ids=["balanced", "hot rank", "ragged sources", "ranks without tokens", "rotating", "burst"],
)
def test_public_workloads_of_experts(
    tmp_path: Path,
    own: Sequence[float],
    loads: Callable[[int], Sequence[float]],
    named: tuple[int, ...],
    words: str,
    gain: float,
) -> None:
    """Workloads of NVIDIA/Megatron-LM's pull request 7488, as ranks see them; `gain`: max - mean, in tokens."""
    scripts = [Script() for _ in own]
    for step in range(8):
        begins_us = [script.now_us for script in scripts]
        for _ in range(2):
            for given, after in ((own, "attention"), (loads(step), "expert")):
                for script, tokens in zip(scripts, given, strict=True):
                    script.launch(after, 300.0 * tokens, op=after, times=int(tokens > 0))
                exchange(scripts, given)
        for script, begin_us in zip(scripts, begins_us, strict=True):
            script.synchronise()
            script.step(step + 1, begin_us)
    said = [f for f in loaded(scripts, tmp_path).report.findings if f.id == ID and "experts" in f.summary]
    assert [(finding.ranks, finding.summary[: len(words)]) for finding in said] == ([(named, words)] if words else [])
    for finding in said:
        assert finding.recoverable_us.value == pytest.approx(2 * 300.0 * gain, rel=0.15)

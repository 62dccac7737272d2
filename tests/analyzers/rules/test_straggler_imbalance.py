"""Unequal work whose victim changes from step to step: the data and not a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captured import sidecar_of, with_sidecars
from kineto_run import Script, meet
from labelled_runs import Labelled, Runs, abstains, fires

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Candidate

ID = "straggler.imbalance"


def test_blames_no_rank_where_the_slowest_changes(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert said.changes[0].kind == "balance_compute"


def test_a_steady_straggler_is_not_imbalance(labelled: Runs) -> None:
    assert labelled("straggler.compute").said(ID) == []


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "no two ranks" in abstains(ID, labelled(ID).only(0))


def fed(run: Labelled, elements: list[list[int]]) -> Measures:
    """The run with these elements fed to each rank in its traced steps."""
    numbers = run.job.ranks[0].steps["index"].tolist()
    return with_sidecars(
        run,
        *({"batches": [{"step": s, "elements": e} for s, e in zip(numbers, row, strict=False)]} for row in elements),
    )


def test_says_who_was_fed_more(labelled: Runs) -> None:
    run = labelled(ID)
    steps = len(run.job.ranks[0].steps)
    rows = [[300 if step % 4 == rank else 100 for step in range(steps)] for rank in range(len(run.job.ranks))]
    (said,) = catalogue()[ID].detect(fed(run, rows))
    assert isinstance(said, Candidate)
    assert "3.00 x the elements" in said.evidence[0].text
    assert "moves between ranks" in said.evidence[0].text


def test_equal_batches_are_said_to_be_equal(labelled: Runs) -> None:
    run = labelled(ID)
    rows = [[100] * len(run.job.ranks[0].steps)] * len(run.job.ranks)
    (said,) = catalogue()[ID].detect(fed(run, rows))
    assert isinstance(said, Candidate)
    assert "equally many elements" in said.evidence[0].text


def test_batches_speak_where_kernels_cannot_be_compared(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    steps = len(run.job.ranks[0].steps)
    rows = [[300 if rank == 1 else 100] * steps for rank in range(len(run.job.ranks))]
    measures = fed(run, rows)
    blind = replace(measures, compute=replace(measures.compute, factor=np.full(len(run.job.ranks), np.nan)))
    (said,) = catalogue()[ID].detect(blind)
    assert isinstance(said, Candidate)
    assert said.ranks == (1,)


def unequal(folder: Path, work: Callable[[Script, int, int], None], ranks: int = 4) -> LoadedRun:
    """Ranks that do `work` (script, rank, step) and meet in an all-reduce, step by step."""
    scripts = [Script() for _ in range(ranks)]
    for step in range(5):
        begins = [script.now_us for script in scripts]
        for number, script in enumerate(scripts):
            work(script, number, step)
        meet(scripts)
        for script, begin in zip(scripts, begins, strict=True):
            script.synchronise()
            script.step(step + 1, begin)
    return LoadedRun("made", job_facts([s.facts(folder, n, ranks) for n, s in enumerate(scripts)]), ())


def serious(made: LoadedRun) -> dict[str, tuple[int, ...]]:
    return {f.id: f.ranks for f in made.report.findings if made.report.severity_of(f) != "info"}


def layers(script: Script, dur_us: float, name: str = "gemm", count: int = 20) -> None:
    for _ in range(count):
        script.launch(name, dur_us=dur_us)


def test_some_kernels_that_take_longer_are_more_work_and_no_slow_device(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        layers(script, 200.0)
        layers(script, 300.0 if rank == 2 else 150.0, "expert", 5)

    assert serious(unequal(tmp_path, work)) == {ID: (2,)}


def test_work_of_one_rank_alone_in_one_step_is_named_and_priced(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        layers(script, 200.0)
        if (rank, step) == (0, 2):
            layers(script, 180.0, "evaluation kernel")

    made = unequal(tmp_path, work)
    assert serious(made) == {ID: (0,)}
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

    made = unequal(tmp_path, work)
    assert serious(made)[ID] == (0,)
    (finding,) = [f for f in made.report.findings if f.id == ID]
    assert "histograms()" in finding.summary
    assert finding.recoverable_us.value == pytest.approx(5 * 400.0 + 3_000.0, rel=0.05)


def test_a_larger_batch_is_more_work_and_no_slow_device(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        script.copy(1_500_000 if rank == 1 else 1_000_000)
        layers(script, 300.0 if rank == 1 else 200.0)

    assert serious(unequal(tmp_path, work)) == {ID: (1,)}


def test_the_same_batch_that_takes_longer_is_a_slow_device(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        script.copy(1_000_000)
        layers(script, 300.0 if rank == 1 else 200.0)

    assert serious(unequal(tmp_path, work)) == {"straggler.compute": (1,)}


def test_equal_work_that_scatters_is_nobodys(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        layers(script, 200.0 + ((rank * 7 + step * 3) % 5) * 0.5)

    assert serious(unequal(tmp_path, work)) == {}


@pytest.mark.parametrize(
    ("name", "rank", "words", "cure"),
    [
        ("hot expert", 3, "the experts of rank 3 get more tokens", "load-balancing loss"),
        ("hot expert, with shapes", 0, "the experts of rank 0 get more tokens", "capacity factor"),
        ("hot table", 1, "the embedding tables of rank 1 get more table rows", "re-shard"),
    ],
)
def test_hot_shards_are_named(labelled: Runs, name: str, rank: int, words: str, cure: str) -> None:
    run = labelled(name)
    said = fires(run, ID)
    assert said.ranks == (rank,)
    assert said.summary.startswith(words)
    assert cure in said.fixes[0].suggested
    assert run.said("straggler.compute") == []
    assert run.score.right


@pytest.mark.parametrize("name", ["slow device among experts", "device short of power among experts"])
def test_a_slow_device_among_experts_is_no_hot_expert(labelled: Runs, name: str) -> None:
    run = labelled(name)
    assert run.said(ID) == []
    assert run.score.right


def test_a_hot_expert_of_two_ranks_counts_by_what_the_other_waits(labelled: Runs) -> None:
    """Two percent of the step over both ranks is four that the other one waits."""
    run = labelled("warm expert of two ranks")
    said = fires(run, ID)
    assert said.ranks == (0,)
    assert said.lost_us < 0.03 * run.measures.step_us


def test_a_larger_batch_costs_what_its_rank_loads_longer_too(tmp_path: Path) -> None:
    """Three times the samples take three times as long to fetch and to compute; the fix is a batch of equal size."""

    def work(script: Script, rank: int, step: int) -> None:
        script.copy(1_000_000)
        loading_us = 3_000.0 if rank == 1 else 1_000.0
        script.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", loading_us, "user_annotation")
        layers(script, 300.0 if rank == 1 else 100.0)

    made = unequal(tmp_path, work)
    steps = made.job.ranks[0].steps["index"].tolist()
    ranks = []
    for number, facts in enumerate(made.job.ranks):
        samples = 192 if number == 1 else 64
        fed = [{"step": step, "elements": 10 * samples, "batches": 1, "samples": samples} for step in steps]
        ranks.append(replace(facts, sidecar=sidecar_of({"batches": fed})))
    report = LoadedRun("made", job_facts(ranks), ()).report
    found = next(finding for finding in report.findings if finding.id == ID)
    assert found.ranks == (1,)
    assert "batches of 192 samples against 64" in found.summary
    assert found.fixes[0].setting == "batch size of rank 1"
    assert found.recoverable_us.value == pytest.approx(2_000.0 + 20 * 200.0, rel=0.2)
    assert not [finding for finding in report.findings if finding.id in ("straggler.host", "straggler.compute")]

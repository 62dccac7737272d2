"""Damage does not accuse: healthy runs whose files were cut, sampled, shifted, mixed or lost name nobody."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import corpus  # makes benchmarks/ importable
import pytest
from mutations import MUTATIONS, Files, load, write

from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.small_runs import small_run
from benchmarks.oracle.spec import Format, Parallel, Scenario
from benchmarks.oracle.write import write as write_run
from ddprof.analyzers.engine import Options, analyze
from ddprof.errors import NoUsableInput

Healthy = Callable[[str, int], Files]

MODEL = replace(corpus.MODEL, layers=2)
healthy_run = partial(small_run, model=MODEL, loader_us=15_000.0)
OLD = Format(names="old", seq=False, collective_args=False, time="integer", distributed_info=False, naming="rank")
RUNS: dict[str, Scenario] = {
    "ddp": healthy_run(ranks=3),
    "fsdp": healthy_run(ranks=4, model=corpus.MODEL, parallel=Parallel("fsdp", dp=4), form=Format(naming="rank")),
    "mesh": healthy_run(ranks=4, hosts=2, steps=4, parallel=Parallel("tpdp", dp=2, tp=2)),
    "pipeline": healthy_run(
        ranks=2, model=replace(MODEL, unit_us=900.0), parallel=replace(corpus.PIPELINE, microbatches=16)
    ),
    "ahead": healthy_run(ranks=3, steps=5, model=replace(MODEL, sync="none"), form=Format(naming="worker")),
    "old": healthy_run(ranks=3, form=OLD),
    "pair": healthy_run(ranks=2, steps=4, form=Format(layout="lines", step_marks=False)),
}
SEEDS = (3, 11)  # of two runs of one script
WIDE = 120  # cases of each mutation
FAST = (range(4), range(4, 8))  # of every second mutation: each is done to most runs, each run has half of them


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Healthy:
    """The files of a healthy run by its name and seed, generated once."""
    made: dict[tuple[str, int], Files] = {}

    def files(name: str, seed: int) -> Files:
        if (name, seed) not in made:
            folder = tmp_path_factory.mktemp(name)
            write_run(simulate(replace(RUNS[name], seed=seed)), folder)
            made[name, seed] = load(folder / "traces")
        return made[name, seed]

    return files


def accusations(mutation: str, case: int, healthy: Healthy, folder: Path) -> list[str]:
    """Findings above "info" of one damaged healthy run, with what reproduces it."""
    rng = random.Random(f"{mutation} {case}")
    name = list(RUNS)[case % len(RUNS)]
    others = healthy(name, SEEDS[1]) if mutation in ("mixed", "both") else {}
    write(MUTATIONS[mutation](healthy(name, SEEDS[0]), others, rng), folder)
    try:
        reports = analyze([folder], Options(workers=1, cache=False))
    except NoUsableInput:
        return []
    loud = [f for r in reports for f in r.findings if r.severity_of(f) != "info"]
    return [f"{mutation} {case} ({name}): {f.id}: {f.summary}" for f in loud]


@pytest.mark.parametrize("cases", [pytest.param(None, id="few"), pytest.param(range(WIDE), marks=pytest.mark.slow)])
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_damage_to_a_run_accuses_nobody(mutation: str, cases: range | None, healthy: Healthy, tmp_path: Path) -> None:
    cases = cases or FAST[list(MUTATIONS).index(mutation) % 2]
    assert [said for case in cases if (said := accusations(mutation, case, healthy, tmp_path / str(case)))] == []

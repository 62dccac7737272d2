"""The verdict follows from what happened, not from how the files tell it, and damage to them accuses nobody."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import corpus
import pytest
import retold
from labelled_runs import SAMPLES
from mutations import MUTATIONS, Files, load, write
from retold import Events

import ddprof
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.small_runs import small_run
from benchmarks.oracle.spec import Format, Parallel, Scenario
from benchmarks.oracle.write import write as write_run
from ddprof.analyzers.engine import Options, analyze
from ddprof.errors import NoUsableInput

FAULTS = ("healthy", "slow_gpu", "slow_stage", "small_buckets", "starved_loader", "gc", "sharding", "no_overlap")
CHANGES: dict[str, Callable[[Sequence[Events]], None]] = {
    "shuffled": retold.shuffled,
    "five times as fast": retold.scaled(0.2),
    "three times as slow": retold.scaled(3.0),
    "times as text": retold.in_text,
    "no sequence numbers": retold.without_sequences,
    "sequence numbers of each process": retold.counted_per_process,
    "one kernel name": retold.older_names,
    "coalesced, without metadata": retold.coalesced,
    "on Intel": retold.on_intel,
    "one rank lost a step": retold.last_step_lost,
    "one in thirty records lost": retold.records_lost,
}


@cache
def _analyzed(traces: Path) -> dict[str, Any]:
    report: dict[str, Any] = ddprof.analyze(traces, cache=False, workers=1).to_dict()
    return report


def blamed(traces: Path) -> dict[str, tuple[int, ...]]:
    """Identifier and ranks of every finding above info."""
    return {f["id"]: tuple(f["ranks"]) for f in _analyzed(traces)["findings"] if f["severity"] != "info"}


def every_change_of_every_fault() -> list[Any]:
    """All pairs: those on the diagonals are fast, so that each change is made to some faults and each fault changed."""
    fast = {(f, (f + turn) % len(CHANGES)) for f in range(len(FAULTS)) for turn in (0, 3)}
    return [
        pytest.param(fault, change, marks=() if (f, c) in fast else pytest.mark.slow)
        for f, fault in enumerate(FAULTS)
        for c, change in enumerate(CHANGES)
    ]


@pytest.mark.parametrize(("fault", "change"), every_change_of_every_fault())
def test_verdict_stays(fault: str, change: str, tmp_path: Path) -> None:
    source = SAMPLES / fault / "traces"
    assert blamed(retold.retell(source, tmp_path / "traces", CHANGES[change])) == blamed(source)


@pytest.mark.parametrize("count", [1, None])
@pytest.mark.parametrize("fault", ["healthy", "slow_gpu"])
def test_device_timeline_that_ends_early_blames_nobody_else(fault: str, count: int | None, tmp_path: Path) -> None:
    source = SAMPLES / fault / "traces"
    told = retold.retell(source, tmp_path / "traces", retold.device_ends_early(0.72, count))
    assert blamed(told) == blamed(source)
    (lost, *_) = [note for note in _analyzed(told)["health"] if "no device record" in note["issue"]]
    assert "steps left out" in lost["effect"]


def test_a_trace_without_any_whole_step_keeps_them_and_blames_nobody(tmp_path: Path) -> None:
    told = retold.retell(SAMPLES / "healthy" / "traces", tmp_path / "traces", retold.device_ends_early(0.2))
    notes = [note for note in _analyzed(told)["health"] if "no device record" in note["issue"]]
    assert {note["severity"] for note in notes} == {"error"} and not blamed(told)


@pytest.mark.parametrize("fault", FAULTS)
def test_without_runtime_calls_no_host_is_accused(fault: str, tmp_path: Path) -> None:
    said = _analyzed(retold.retell(SAMPLES / fault / "traces", tmp_path / "traces", retold.without_calls))
    assert {f["id"] for f in said["findings"] if f["severity"] != "info"} <= set(blamed(SAMPLES / fault / "traces"))
    assert any(a["id"] == "straggler.host" and "launch calls" in a["reason"] for a in said["abstentions"])


@pytest.mark.parametrize(("change", "within"), [(retold.without_calls, 0.05), (retold.records_lost, 0.25)])
@pytest.mark.parametrize("fault,finding", [("no_overlap", "comm.no_overlap"), ("small_buckets", "comm.latency_bound")])
def test_a_fix_of_communication_wins_as_much(
    fault: str, finding: str, change: retold.Change, within: float, tmp_path: Path
) -> None:
    """Steps of operations, and lengths of backward passes, are read off the device's own times; or peers fill in."""
    source = SAMPLES / fault / "traces"
    both = (source, retold.retell(source, tmp_path / "traces", change))
    named = [f for traces in both for f in _analyzed(traces)["findings"] if f["id"] == finding]
    before, after = (f["recoverable_us"]["value"] for f in named)
    assert after == pytest.approx(before, rel=within)


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
FAST = tuple(range(n, n + 2) for n in range(0, 8, 2))  # in turn: each mutation is done to two runs


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
    cases = cases or FAST[list(MUTATIONS).index(mutation) % len(FAST)]
    assert [said for case in cases if (said := accusations(mutation, case, healthy, tmp_path / str(case)))] == []

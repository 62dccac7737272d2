"""Loader processes that are made again for every epoch show in the first batch of each."""

from dataclasses import replace
from pathlib import Path

import pytest
from cpu_loop import cpu_loop
from labelled_runs import candidates, run_of
from msgspec import structs

from ddprof.analyzers.job.whole_run.remade_workers import remade_workers
from ddprof.findings import Candidate
from ddprof.sidecar import LoaderSettings, Sidecar, StepTimes

EPOCH, STEP_NS, FETCH_NS, START_NS = 8, 50_000_000, 200_000, 100_000_000


def recorded(steps: int = 80, persistent: bool = False, first: int = 0, start_ns: int = START_NS) -> Sidecar:
    """Steps of 50 ms; in the first of each epoch the loader takes `start_ns` longer."""
    found, now = [], 10**15
    for index in range(steps):
        data = FETCH_NS + (start_ns if index % EPOCH == first else 0)
        found.append(StepTimes(index=index, start_ns=now, end_ns=now + STEP_NS + data, data_ns=data, profiled=False))
        now += STEP_NS + data
    loader = LoaderSettings(num_workers=2, persistent_workers=persistent, batches_per_epoch=EPOCH)
    return Sidecar(schema="ddprof.sidecar/1", dataloader=loader, steps=tuple(found))


@pytest.mark.parametrize("first", [0, 3])
def test_every_epoch_but_the_first_starts_workers(first: int) -> None:
    starts = remade_workers(recorded(first=first))
    assert len(starts) == 10 - (first == 0) and {start.dur_ns for start in starts} == {START_NS}
    assert remade_workers(recorded(steps=12, first=first)) == []  # a short run says nothing


def said(folder: Path, sidecar: Sidecar) -> list[Candidate]:
    ranks = [replace(cpu_loop(folder, rank=rank), sidecar=structs.replace(sidecar, rank=rank)) for rank in range(2)]
    return candidates("input.starved", run_of(ranks).measures)


def test_workers_that_are_made_again_are_kept(tmp_path: Path) -> None:
    (candidate,) = said(tmp_path, recorded())
    assert [fix.setting for fix in candidate.fixes] == ["persistent_workers"] and candidate.ranks == ()
    share = START_NS / (EPOCH * (STEP_NS + FETCH_NS) + START_NS)
    assert candidate.lost_us == pytest.approx(share * 20_500.0, rel=0.2)


@pytest.mark.parametrize("sidecar", [recorded(persistent=True), recorded(start_ns=200_000)])
def test_workers_that_live_on_or_start_fast_are_not_told(tmp_path: Path, sidecar: Sidecar) -> None:
    assert said(tmp_path, sidecar) == []

"""Sentences that answer an everyday question: which host, why the loader waits, and where the links lead."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ddprof.analyzers.catalogue import catalogue
from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.parts.answered_by import page_of_cause, page_of_finding
from ddprof.dashboard.exhibits.parts.loading import loading_words
from ddprof.dashboard.exhibits.parts.numbers import charged_us
from ddprof.dashboard.exhibits.places.by_host import by_host
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.sidecar import LoaderSettings, TimedFetches

PATHS = {subject.path for subject in SUBJECTS}


def on_hosts(opened: OpenRun, per_host: int) -> View:
    """The run as one of hosts with so many ranks each."""
    report = opened.report
    hosts = {rank: f"node{rank // per_host}" for rank in report.run.ranks}
    placed = replace(opened, report=replace(report, run=replace(report.run, hosts=hosts)))
    return View(placed, {}, (placed,))


def test_a_host_of_which_all_ranks_are_named_is_suspected(straggler: OpenRun) -> None:
    found = by_host(on_hosts(straggler, 2))  # ranks 2 and 3 are slow
    assert found is not None and found.reading.startswith("node1 (ranks 2, 3)")
    assert "names all of its ranks: look at the host" in found.reading
    by_rank = charged_us(straggler.job).sum(axis=1) / 1e3
    assert [row[-1] for row in found.sheet.rows] == pytest.approx(by_rank.reshape(-1, 2).sum(axis=1))


def test_a_rank_of_a_host_is_suspected_before_the_host(straggler: OpenRun) -> None:
    found = by_host(on_hosts(straggler, 4))
    assert found is not None and "names ranks 2, 3 of its 4: look at that device or process first" in found.reading


def test_one_host_is_not_compared(straggler: OpenRun) -> None:
    assert by_host(on_hosts(straggler, 8)) is None


def test_every_finding_and_cause_leads_to_a_page(straggler: OpenRun) -> None:
    for name in catalogue():
        found = page_of_finding(name)
        assert found is not None and found[1] in PATHS, name
    assert {page_of_cause(cause) for cause in CAUSES} <= PATHS


def _timed(opened: OpenRun, workers: int | None, fetch_ms: float) -> str:
    """What is said of the run with so many workers, timed to take so long for a batch; 0: not timed."""
    measures = opened.measures
    timed = TimedFetches(workers=workers or 0, fetch_ns=round(fetch_ms * 1e6), samples=9)
    ranks = tuple(replace(f, sidecar=f.sidecar.with_fetching(timed)) if fetch_ms else f for f in measures.job.ranks)
    settings = msgspec.structs.replace(measures.settings, dataloader=LoaderSettings(num_workers=workers))
    return loading_words(replace(measures, job=replace(measures.job, ranks=ranks), settings=settings))


def test_a_loader_is_described_by_its_workers_and_its_batch(straggler: OpenRun) -> None:
    assert (
        _timed(straggler, 4, 36.0) == "4 workers make a rank's batches, each in 36 ms, so that one is ready each 9 ms."
    )
    assert _timed(straggler, 1, 36.0) == "1 worker makes a rank's batches, each in 36 ms."
    assert "makes each batch itself, in 36 ms" in _timed(straggler, 0, 36.0)
    assert _timed(straggler, None, 0).startswith("Not recorded: how many workers")
    assert _timed(straggler, 4, 0) == "The run had 4 workers per rank; what a batch costs was not timed."
